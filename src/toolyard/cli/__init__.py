"""The command line: each command parses its arguments, calls the core and prints the result.

``commands/`` has one module per command, imported when it is used, so that ``toolyard --help`` stays fast.
``input/`` reads options, arguments and answers. ``output/`` prints tables for terminals, plain lines for
pipes and JSON for programs. ``chat/`` is the chat in the terminal. Start reading at ``app``.
"""

from toolyard.cli.app import main

__all__ = ["main"]
