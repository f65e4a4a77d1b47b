"""``toolyard stdio``: the gateway for one local client, over standard streams."""

from __future__ import annotations

import os
import stat
import sys
from typing import Literal, TextIO

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Command, Options
from toolyard.cli.runner import run_async
from toolyard.config import load_config, load_settings

__all__ = ["command"]


@click.command("stdio", cls=Command, short_help=COMMAND_SUMMARIES["stdio"])
@click.option("--agent", metavar="NAME", help="Only what this agent of AGENTS.md may use.")
@click.option("--bundle", metavar="NAME", help="Only what this bundle holds.")
@click.option("--server", metavar="ID", help="Only this server, under its own names.")
@click.option(
    "--mode",
    type=click.Choice(["direct", "meta"]),
    help="Show the tools themselves, or a few through which all are reached. Default: what the agent says.",
)
@click.pass_obj
def command(
    options: Options,
    agent: str | None,
    bundle: str | None,
    server: str | None,
    mode: Literal["direct", "meta"] | None,
) -> int:
    """Be one MCP server that speaks for all of them: for clients that start their servers as programs.

    Reads messages from standard input and writes them to standard output, in either era of the protocol,
    until the input ends. What is logged goes to standard error.
    """
    if sum(word is not None for word in (agent, bundle, server)) > 1:
        raise Usage("--agent, --bundle and --server exclude each other", hint="give one of them")
    _check_stream("standard input", sys.stdin)
    _check_stream("standard output", sys.stdout)
    from toolyard.agents.definitions.agents_md import find_agents_file, read_agents  # not for the help
    from toolyard.gateway.stdio.local_gateway import resolve_caller, serve_local

    folder = options.resolved_data_dir
    settings = load_settings(folder)
    configuration = load_config(options.config, data_dir=folder)
    path = find_agents_file(settings.agents_path, folder)
    agents = () if path is None else read_agents(path).agents
    caller = resolve_caller(configuration, agents, agent=agent, bundle=bundle, server=server)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    # Whatever else prints in this process must not come between the messages.
    sys.stdout = sys.stderr
    run_async(serve_local(configuration, settings, folder, caller, server, mode, source, sink))
    return 0


def _check_stream(name: str, stream: TextIO) -> None:
    """Event loops cannot wait for files, and one of them ends the process without a word."""
    mode = os.fstat(stream.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()):
        hint = "an MCP client starts this command; to call a tool yourself, use `toolyard call`"
        raise Usage(f"{name} is neither a pipe nor a terminal", hint=hint)
