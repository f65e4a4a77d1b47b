"""``toolyard stdio``: the gateway for one local client, over standard streams."""

from __future__ import annotations

import os
import stat
import sys
from typing import Literal, TextIO

import click

from toolyard.cli.invocation import Command, Options, Usage, run_async

__all__ = ["command"]


@click.command("stdio", cls=Command)
@click.option("--agent", metavar="NAME", help="Only the tools of this agent.")
@click.option("--bundle", metavar="NAME", help="Only the tools of this bundle.")
@click.option("--server", metavar="ID", help="Only this server, with its own tool names.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "meta"]),
    help="Show all tools, or the meta tools. Default: the agent's mode.",
)
@click.option("--standalone", is_flag=True, help="Start servers for this client alone.")
@click.pass_obj
def command(
    options: Options,
    agent: str | None,
    bundle: str | None,
    server: str | None,
    mode: Literal["direct", "meta"] | None,
    standalone: bool,
) -> int:
    """Run one MCP server that offers all of yours, for clients that start servers as programs.

    Reads messages from standard input and writes them to standard output, in both protocol eras, until the
    input ends. All clients share one Toolyard in the background, which the first one starts. With
    --standalone, --verbose or --json, or if TOOLYARD_STANDALONE is 1, this process does all the work itself,
    and logs go to standard error.
    """
    if sum(word is not None for word in (agent, bundle, server)) > 1:
        raise Usage("--agent, --bundle and --server cannot be combined", hint="use only one of them")
    _refuse_regular_file("standard input", sys.stdin)
    _refuse_regular_file("standard output", sys.stdout)
    from toolyard.agents.definitions.agents_md import load_agents  # not for the help
    from toolyard.core.agents import add_stored_agents
    from toolyard.gateway.stdio.local_gateway import resolve_caller, serve_local

    folder = options.resolved_data_dir
    settings = options.load_settings()
    configuration = options.load_config()
    agents = load_agents(settings.agents_path, folder)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # Other output of this process must not appear between the messages.
    sys.stdout = sys.stderr

    async def serve() -> None:
        known = await add_stored_agents({each.id: each for each in agents}, agent, settings, folder)
        caller = resolve_caller(configuration, known, agent=agent, bundle=bundle, server=server)
        await serve_local(configuration, settings, folder, caller, server, mode, source, sink)

    run_async(serve())
    return 0


def _refuse_regular_file(name: str, stream: TextIO) -> None:
    """Refuse regular files, which event loops cannot wait for; uvloop would end the process without a
    message."""
    mode = os.fstat(stream.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()):
        hint = "an MCP client starts this command; to call a tool yourself, use `toolyard call`"
        raise Usage(f"{name} is neither a pipe nor a terminal", hint=hint)
