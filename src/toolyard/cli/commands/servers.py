"""``toolyard servers`` and ``restart``: the states of all servers, and a new start of one."""

from __future__ import annotations

import click

from toolyard.cli.backends.backend import EarlyServersReport, ServersRequest
from toolyard.cli.backends.selection import open_backend
from toolyard.cli.invocation import Options, RemoteCommand, Usage, run_async
from toolyard.cli.output.console import print_json, show_notices
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.cli.output.servers import servers_json, show_processes, show_server_hints, show_servers
from toolyard.errors import Unreachable

__all__ = ["commands"]


@click.command("servers", cls=RemoteCommand)
@click.option("--fail", is_flag=True, help="Exit with 3 if an enabled server does not work.")
@click.option("--fresh", is_flag=True, help="Try servers again that did not answer a minute ago.")
@click.option("--no-connect", is_flag=True, help="Show stored data, without connecting.")
@click.pass_obj
def _servers(options: Options, fail: bool, fresh: bool, no_connect: bool) -> int:
    """Connect to all enabled servers at once, list their tools, and show the state of each.

    Tokens are an estimate of the cost of all its tool definitions in a model's context.
    """
    request = ServersRequest(connects=not no_connect, retries=fresh, has_notices=not options.json)
    return run_async(_list_servers(options, request, fail=fail))


async def _list_servers(options: Options, request: ServersRequest, *, fail: bool) -> int:
    early: set[str] = set()
    async with open_backend(options, offline=not request.connects) as backend:
        async with ProgressIndicator("connecting", quiet=options.json) as progress:

            def show_early(known: EarlyServersReport) -> None:
                early.update(line.server for line in known.servers)
                progress.stop()
                show_servers(known.servers)
                progress.show_waiting(known.awaited_servers)

            report = await backend.list_servers(request, None if options.json else show_early)
        if options.json:
            print_json(servers_json(report.servers))
        else:
            show_servers([line for line in report.servers if line.server not in early])
            if backend.outlives_command:
                show_processes(report.servers)
            show_notices(report.notices)
            show_server_hints(report.servers)
    return Unreachable.exit_code if fail and any(line.is_broken for line in report.servers) else 0


@click.command("restart", cls=RemoteCommand)
@click.argument("server")
@click.pass_obj
def _restart(options: Options, server: str) -> int:
    """Close all connections of SERVER in the Toolyard that runs in the background, or at --remote URL, and
    connect again.

    Exits with 3 if the server does not work afterwards.
    """
    return run_async(_restart_server(options, server))


async def _restart_server(options: Options, server: str) -> int:
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
    return Unreachable.exit_code if line.is_broken else 0


commands = {"servers": _servers, "restart": _restart}
