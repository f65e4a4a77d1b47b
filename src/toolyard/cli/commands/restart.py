"""``toolyard restart``: restart a server of a running Toolyard."""

from __future__ import annotations

import click

from toolyard.cli.backends.backend import open_backend
from toolyard.cli.invocation import Options, RemoteCommand, Usage, run_async
from toolyard.cli.output.console import print_json
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.servers import servers_json, show_server_hints, show_servers

__all__ = ["command"]

_UNREACHABLE_EXIT_CODE = 3


@click.command("restart", cls=RemoteCommand)
@click.argument("server")
@click.pass_obj
def command(options: Options, server: str) -> int:
    """Close all connections of SERVER in the Toolyard that runs in the background, or at --remote URL, and
    connect again.

    Exits with 3 if the server does not work afterwards.
    """
    return run_async(_restart(options, server))


async def _restart(options: Options, server: str) -> int:
    async with open_backend(options) as backend:
        if not backend.outlives_command:
            raise Usage(
                "no Toolyard is running in the background: servers started by a command end with it",
                hint="pass --remote with the URL of a running Toolyard (`toolyard serve`)",
            )
        async with ProgressIndicator(f"restarting {server}", quiet=options.json):
            line = await backend.restart(server)
    if options.json:
        print_json(servers_json([line])[0])
    else:
        show_servers([line])
        show_server_hints([line])
    return _UNREACHABLE_EXIT_CODE if line.is_broken else 0
