"""``toolyard restart``: restart a server of a running Toolyard."""

from __future__ import annotations

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.runner import run_async

__all__ = ["command"]


@click.command("restart", cls=RemoteCommand, short_help=COMMAND_SUMMARIES["restart"])
@click.argument("server")
@click.pass_obj
def command(options: Options, server: str) -> int:
    """Close all connections of SERVER in the Toolyard at --remote URL, and connect again.

    Exits with 3 if the server does not work afterwards.
    """
    if options.remote is None:
        raise Usage(
            "restart requires --remote: servers that a command starts end with the command",
            hint="pass --remote with the URL of a running Toolyard (`toolyard serve`)",
        )
    from toolyard.cli.remote_commands import restart_remotely  # only for --remote

    return run_async(restart_remotely(options, server))
