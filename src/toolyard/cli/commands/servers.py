"""``toolyard servers``: connect to all servers and show their states."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from toolyard.cli.app import COMMAND_SUMMARIES
from toolyard.cli.input.options import Options, RemoteCommand
from toolyard.cli.output.notice_memory import NoticeMemory
from toolyard.cli.output.notices import (
    clean_server_text,
    show_no_servers_notice,
    show_quarantined_tools_notice,
    show_servers_without_tools,
    show_unapproved_file_notice,
)
from toolyard.cli.output.progress import EARLY_OUTPUT_SECONDS, ProgressIndicator
from toolyard.cli.output.safe_text import format_age, format_count, print_json
from toolyard.cli.output.servers import (
    ServerSummary,
    describe_server_info,
    servers_json,
    show_server_hints,
    show_servers,
)
from toolyard.cli.runner import open_offline_yard, open_yard, run_async
from toolyard.config import load_config, load_settings
from toolyard.errors import ServerError
from toolyard.types.catalog import Catalogue
from toolyard.types.server import Server
from toolyard.types.status import State, Status

if TYPE_CHECKING:
    from toolyard.yard import Toolyard

__all__ = ["command"]

_MAX_STDERR_LINES = 5
_UNREACHABLE_EXIT_CODE = 3


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server in the list."""

    server: Server
    status: Status
    catalogue: Catalogue | None
    failure: ServerError | None

    @property
    def state(self) -> State:
        """Return the state; a server whose tools cannot be listed counts as failed, also if an earlier
        command found that out."""
        failed = self.failure is not None and self.status.state in (State.READY, State.IDLE)
        return State.FAILED if failed else self.status.state

    @property
    def is_done(self) -> bool:
        """Return whether the server needs no further wait: it is listed, has failed or is disabled."""
        listed = self.catalogue is not None and not self.catalogue.stale
        return self.state not in (State.READY, State.IDLE, State.CONNECTING) or (
            self.state is State.READY and listed
        )

    @property
    def is_broken(self) -> bool:
        failed = self.failure is not None or self.state is State.FAILED
        return failed and (self.server.enabled or bool(self.server.problems))

    @property
    def cause(self) -> str | None:
        found = self.status.cause or (self.failure.cause if self.failure is not None else None)
        return None if found is None else clean_server_text(found, self.server)

    @property
    def hint(self) -> str | None:
        return self.status.hint or (self.failure.hint if self.failure is not None else None)

    @property
    def stderr_lines(self) -> list[str]:
        lines = [clean_server_text(line, self.server) for line in self.status.stderr]
        return [line for line in lines if line][-_MAX_STDERR_LINES:]

    @property
    def protocol_version(self) -> str | None:
        kept = self.catalogue.listing.protocol_version if self.catalogue is not None else None
        return self.status.protocol_version or kept


@click.command("servers", cls=RemoteCommand, short_help=COMMAND_SUMMARIES["servers"])
@click.option("--fail", is_flag=True, help="Exit with 3 if an enabled server does not work.")
@click.option("--fresh", is_flag=True, help="Try servers again that did not answer a minute ago.")
@click.option("--no-connect", is_flag=True, help="Show stored data, without connecting.")
@click.pass_obj
def command(options: Options, fail: bool, fresh: bool, no_connect: bool) -> int:
    """Connect to all enabled servers at once, list their tools, and show the state of each.

    Tokens are an estimate of the cost of all its tool definitions in a model's context.
    """
    if options.remote is not None:
        from toolyard.cli.remote_commands import show_remote_servers  # only for --remote

        return run_async(show_remote_servers(options, fail=fail, connect=not no_connect))
    return run_async(_run_servers(options, fail, fresh, no_connect))


async def _run_servers(options: Options, fail: bool, fresh: bool, no_connect: bool) -> int:
    import asyncio  # slow to load, and not needed for the help

    async with _open_yard_for_servers(options, no_connect) as yard:
        enabled = sum(server.enabled for server in yard.configuration.servers.values())
        early: list[ServerSummary] = []
        if not no_connect and enabled:
            async with ProgressIndicator(
                f"connecting to {format_count(enabled, 'server')}", quiet=options.json
            ) as progress:
                listing = asyncio.ensure_future(yard.tools(fresh=True, retry=fresh))
                await asyncio.wait({listing}, timeout=EARLY_OUTPUT_SECONDS)
                if not listing.done() and not options.json:
                    await yard.search("")  # Loads the listings that have come so far.
                    views = _collect_views(yard)
                    early = [_summarize_view(one, no_connect) for one in views if one.is_done]
                    progress.stop()
                    show_servers(early)
                    progress.show_waiting(one.server.id for one in views if not one.is_done)
                await listing
        seen = _collect_views(yard)
        lines = [_summarize_view(one, no_connect) for one in seen]
        if options.json:
            print_json(servers_json(lines))
        else:
            shown = {line.server for line in early}
            show_servers([line for line in lines if line.server not in shown])
            show_no_servers_notice(yard.configuration, options.resolved_data_dir)
            show_unapproved_file_notice(yard.configuration)
            memory = NoticeMemory(options.resolved_data_dir, yard.configuration.file)
            show_quarantined_tools_notice(yard.known(), memory=memory)
            show_servers_without_tools(yard.known(), yard.hidden(), yard.configuration)
            show_server_hints(lines)
    return _UNREACHABLE_EXIT_CODE if fail and any(line.is_broken for line in lines) else 0


def _open_yard_for_servers(options: Options, no_connect: bool) -> AbstractAsyncContextManager[Toolyard]:
    if not no_connect:
        return open_yard(options)
    folder = options.resolved_data_dir
    return open_offline_yard(load_config(options.config, data_dir=folder), load_settings(folder), folder)


def _collect_views(yard: Toolyard) -> list[ServerView]:
    roster = yard.known()
    seen: list[ServerView] = []
    for status in yard.servers():
        catalogue = roster.catalogues.get(status.server)
        server = yard.configuration.servers[status.server]
        seen.append(ServerView(server, status, catalogue, roster.failures.get(status.server)))
    return seen


def _summarize_view(view: ServerView, no_connect: bool) -> ServerSummary:
    catalogue = view.catalogue
    about = describe_server_info(view.status.server_info)
    if no_connect:
        about = "never listed" if catalogue is None else f"listed {format_age(catalogue.age)}"
    return ServerSummary(
        server=view.server.id,
        state=view.state.value,
        enabled=view.server.enabled,
        transport=view.server.transport.type,
        trust=view.server.trust.value,
        origin=str(view.server.provenance),
        about=about,
        is_broken=view.is_broken,
        cause=view.cause,
        hint=view.hint,
        protocol_version=view.protocol_version,
        server_info=view.status.server_info,
        tool_count=None if catalogue is None else len(catalogue.definitions),
        token_count=view.status.token_cost,
        quarantined_tools=() if catalogue is None else tuple(str(each) for each in catalogue.quarantined),
        listed_seconds_ago=None if catalogue is None else round(catalogue.age, 3),
        stderr_lines=tuple(view.stderr_lines),
        processes=view.status.processes,
    )
