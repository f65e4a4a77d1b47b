"""``toolyard connect``: what to put into a client so that it uses the gateway."""

from __future__ import annotations

import json

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.ending import Usage
from toolyard.cli.input.options import Command, Options

__all__ = ["command"]

_NAMES = ("claude-code", "claude-desktop", "codex", "cursor", "opencode", "vscode")


@click.command("connect", cls=Command, short_help=COMMANDS["connect"])
@click.argument("client", type=click.Choice(_NAMES))
@click.option("--url", metavar="URL", help="The address of a running Toolyard. Default: `toolyard stdio`.")
@click.option("--token", is_flag=True, help="With --url: a token is needed there.")
@click.option("--agent", metavar="NAME", help="Only what this agent of AGENTS.md may use.")
@click.option("--bundle", metavar="NAME", help="Only what this bundle holds.")
@click.option("--server", metavar="ID", help="Only this server, under its own names.")
@click.pass_obj
def command(
    options: Options,
    client: str,
    url: str | None,
    token: bool,
    agent: str | None,
    bundle: str | None,
    server: str | None,
) -> int:
    """Show what to put into a client's configuration so that it uses all your servers through Toolyard."""
    from toolyard.gateway.connecting import Way, address, snippet  # not for the help

    chosen = {"agent": agent, "bundle": bundle, "server": server}
    given = {name: value for name, value in chosen.items() if value is not None}
    if len(given) > 1:
        raise Usage("--agent, --bundle and --server exclude each other", hint="give one of them")
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    way = Way(
        ("toolyard", "stdio", *words),
        None if url is None else address(url, **given),
        token and url is not None,
    )
    try:
        made = snippet(client, way)
    except ValueError as error:
        raise Usage(str(error), hint="leave out --url to let it start `toolyard stdio`") from None
    if options.json:
        print(
            json.dumps({"client": made.client, "file": made.file, "text": made.text, "command": made.command})
        )
        return 0
    if made.command is not None:
        print(f"Run:\n\n{made.command}\n\nor put this into {made.file}:\n\n{made.text}")
    else:
        print(f"Put this into {made.file}:\n\n{made.text}")
    return 0
