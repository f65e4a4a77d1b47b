"""``toolyard servers``: connect to all of them, and show how they are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.problems import show_finding
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.remarks import clean, tell_nothing_configured, tell_set_aside, tell_waiting
from toolyard.cli.output.style import is_terminal, paint
from toolyard.cli.output.tables import Cell, Column, Row, show_table
from toolyard.cli.output.text import ago, count, one_line, print_json
from toolyard.cli.running import only_look, open_yard, run_async
from toolyard.config import load_config, load_settings
from toolyard.errors import ServerError
from toolyard.model.catalog import Catalogue
from toolyard.model.server import Server
from toolyard.model.status import State, Status

if TYPE_CHECKING:
    from toolyard.yard import Toolyard

__all__ = ["command"]

_COLUMNS = (
    Column("server", style="cyan", whole=True),
    Column("state"),
    Column("tools", right=True),
    Column("~tokens", right=True),
    Column("protocol"),
    Column("about", wraps=True),
)
_STYLES = {State.READY: "green", State.FAILED: "red", State.NEEDS_AUTH: "yellow", State.DISABLED: "dim"}
_LAST_WORDS = 5
_UNREACHABLE = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """One server as it is shown."""

    server: Server
    status: Status
    catalogue: Catalogue | None
    failure: ServerError | None

    @property
    def state(self) -> State:
        """A server that answers, but cannot tell its tools, has failed for whoever wants them."""
        failed = self.failure is not None and self.status.state is State.READY
        return State.FAILED if failed else self.status.state

    @property
    def broken(self) -> bool:
        return self.server.enabled and (self.failure is not None or self.state is State.FAILED)

    @property
    def cause(self) -> str | None:
        found = self.status.cause or (self.failure.cause if self.failure is not None else None)
        return None if found is None else clean(found, self.server)

    @property
    def hint(self) -> str | None:
        return self.status.hint or (self.failure.hint if self.failure is not None else None)

    @property
    def last_words(self) -> list[str]:
        lines = [clean(line, self.server) for line in self.status.stderr]
        return [line for line in lines if line][-_LAST_WORDS:]

    @property
    def protocol(self) -> str | None:
        kept = self.catalogue.listing.protocol_version if self.catalogue is not None else None
        return self.status.protocol_version or kept


@click.command("servers", cls=Command, short_help=COMMANDS["servers"])
@click.option("--fail", is_flag=True, help="Exit with 3 when an enabled server cannot be used.")
@click.option("--no-connect", is_flag=True, help="Show what is known, without connecting.")
@click.pass_obj
def command(options: Options, fail: bool, no_connect: bool) -> int:
    """Connect to all enabled servers at once, list their tools, and show how each of them is.

    Tokens are an estimate of what the definitions of all its tools cost in a model's context.
    """
    return run_async(_servers(options, fail, no_connect))


async def _servers(options: Options, fail: bool, no_connect: bool) -> int:
    async with _opened(options, no_connect) as yard:
        enabled = sum(server.enabled for server in yard.configuration.servers.values())
        if not no_connect and enabled:
            async with Busy(f"connecting to {count(enabled, 'server')}", quiet=options.json):
                await yard.tools(fresh=True)
        seen = _seen(yard)
        if options.json:
            print_json([_as_json(one) for one in seen])
        else:
            show_table(_COLUMNS, [_row(one, no_connect) for one in seen])
            tell_nothing_configured(yard.configuration, options.folder)
            tell_waiting(yard.configuration)
            tell_set_aside(yard.known())
            for one in seen:
                _tell_more(one)
    return _UNREACHABLE if fail and any(one.broken for one in seen) else 0


def _opened(options: Options, no_connect: bool) -> AbstractAsyncContextManager[Toolyard]:
    if not no_connect:
        return open_yard(options)
    folder = options.folder
    return only_look(load_config(options.config, data_dir=folder), load_settings(folder), folder)


def _seen(yard: Toolyard) -> list[Seen]:
    roster = yard.known()
    seen: list[Seen] = []
    for status in yard.servers():
        catalogue = roster.catalogues.get(status.server)
        server = yard.configuration.servers[status.server]
        seen.append(Seen(server, status, catalogue, roster.failures.get(status.server)))
    return seen


def _row(one: Seen, no_connect: bool) -> Row:
    catalogue = one.catalogue
    return (
        one.server.id,
        Cell(one.state.value, _STYLES.get(one.state, "")),
        "-" if catalogue is None else str(len(catalogue.definitions)),
        "-" if one.status.token_cost is None else f"{one.status.token_cost}",
        one.protocol or "-",
        _about(one, no_connect),
    )


def _about(one: Seen, no_connect: bool) -> str | Cell:
    if one.cause is not None:
        return Cell(one.cause, _STYLES.get(one.state, ""))
    if not one.server.enabled:
        return Cell("switched off in its entry", "dim")
    if no_connect:
        return "never listed" if one.catalogue is None else f"listed {ago(one.catalogue.age)}"
    return _named(one.status.server_info)


def _named(info: Mapping[str, Any]) -> str:
    words = (info.get("title") or info.get("name"), info.get("version"))
    return one_line(" ".join(word for word in words if isinstance(word, str)), 60)


def _tell_more(one: Seen) -> None:
    """What helps with a server that cannot be used: on standard error, so that a pipe keeps its lines."""
    if not one.broken:
        return
    lines: Sequence[str] = one.last_words
    if one.hint or lines:
        if is_terminal(sys.stderr):
            print(file=sys.stderr)
        name = paint(f"{one.server.id}:", "cyan", sys.stderr)
        for line in lines:
            print(f"{name} {paint(f'stderr: {line}', 'dim', sys.stderr)}", file=sys.stderr)
        if one.hint:
            show_finding("hint", f"{one.server.id}: {one.hint}", None, sys.stderr)


def _as_json(one: Seen) -> dict[str, Any]:
    catalogue, status = one.catalogue, one.status
    return {
        "server": one.server.id,
        "state": one.state.value,
        "cause": one.cause,
        "hint": one.hint,
        "transport": one.server.transport.type,
        "trust": one.server.trust.value,
        "origin": str(one.server.provenance),
        "protocol_version": one.protocol,
        "server_info": dict(status.server_info),
        "tools": None if catalogue is None else len(catalogue.definitions),
        "tokens_estimated": one.status.token_cost,
        "set_aside": [] if catalogue is None else [str(each) for each in catalogue.quarantined],
        "listed_seconds_ago": None if catalogue is None else round(catalogue.age, 3),
        "stderr": one.last_words if one.broken else [],
    }
