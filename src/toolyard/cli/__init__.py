"""The command line: one command a file, which parses, calls the core and prints.

``input/`` is what commands read: options, arguments, answers, names to complete. ``output/`` is what they
print: tables for a terminal, plain lines for a pipe, JSON for a program, problems, progress. A command's own
module is imported when it is used, so that ``toolyard --help`` stays quick.
"""

from toolyard.cli.app import main

__all__ = ["main"]
