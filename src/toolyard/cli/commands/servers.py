"""``toolyard servers``: connect to all of them, and show how they are."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.output.notices import clean, tell_nothing_configured, tell_set_aside, tell_waiting
from toolyard.cli.output.progress import Busy
from toolyard.cli.output.safe_text import ago, count, print_json
from toolyard.cli.output.servers import ServerLine, named, servers_json, show_servers, tell_more
from toolyard.cli.runner import only_look, open_yard, run_async
from toolyard.config import load_config, load_settings
from toolyard.errors import ServerError
from toolyard.types.catalog import Catalogue
from toolyard.types.server import Server
from toolyard.types.status import State, Status

if TYPE_CHECKING:
    from toolyard.yard import Toolyard

__all__ = ["command"]

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


@click.command("servers", cls=RemoteCommand, short_help=COMMANDS["servers"])
@click.option("--fail", is_flag=True, help="Exit with 3 when an enabled server cannot be used.")
@click.option("--no-connect", is_flag=True, help="Show what is known, without connecting.")
@click.pass_obj
def command(options: Options, fail: bool, no_connect: bool) -> int:
    """Connect to all enabled servers at once, list their tools, and show how each of them is.

    Tokens are an estimate of what the definitions of all its tools cost in a model's context.
    """
    if options.remote is not None:
        from toolyard.cli.remote_commands import show_remote_servers  # only for --remote

        return run_async(show_remote_servers(options, fail=fail, connect=not no_connect))
    return run_async(_servers(options, fail, no_connect))


async def _servers(options: Options, fail: bool, no_connect: bool) -> int:
    async with _opened(options, no_connect) as yard:
        enabled = sum(server.enabled for server in yard.configuration.servers.values())
        if not no_connect and enabled:
            async with Busy(f"connecting to {count(enabled, 'server')}", quiet=options.json):
                await yard.tools(fresh=True)
        seen = _seen(yard)
        lines = [_line(one, no_connect) for one in seen]
        if options.json:
            print_json(servers_json(lines))
        else:
            show_servers(lines)
            tell_nothing_configured(yard.configuration, options.folder)
            tell_waiting(yard.configuration)
            tell_set_aside(yard.known())
            tell_more(lines)
    return _UNREACHABLE if fail and any(line.broken for line in lines) else 0


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


def _line(one: Seen, no_connect: bool) -> ServerLine:
    catalogue = one.catalogue
    about = named(one.status.server_info)
    if no_connect:
        about = "never listed" if catalogue is None else f"listed {ago(catalogue.age)}"
    return ServerLine(
        server=one.server.id,
        state=one.state.value,
        enabled=one.server.enabled,
        transport=one.server.transport.type,
        trust=one.server.trust.value,
        origin=str(one.server.provenance),
        about=about,
        broken=one.broken,
        cause=one.cause,
        hint=one.hint,
        protocol=one.protocol,
        info=one.status.server_info,
        tools=None if catalogue is None else len(catalogue.definitions),
        tokens=one.status.token_cost,
        set_aside=() if catalogue is None else tuple(str(each) for each in catalogue.quarantined),
        age=None if catalogue is None else round(catalogue.age, 3),
        stderr=tuple(one.last_words),
    )
