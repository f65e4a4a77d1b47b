"""The backend on a Toolyard object: of this process, or of a view in the background process."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from toolyard.agents.definitions.tools_list import find_possible_servers
from toolyard.catalog.exposed_names import NameAssigner, NameTemplates
from toolyard.cli.backends.backend import (
    Approve,
    CommandCall,
    EarlyServersReport,
    OnCallProgress,
    PartialTools,
    SearchReport,
    SearchRequest,
    ServersReport,
    ServersRequest,
    ToolsReport,
    ToolsRequest,
)
from toolyard.cli.input.arguments import coerce_key_values
from toolyard.cli.invocation import unknown_server_error
from toolyard.cli.output import notices
from toolyard.cli.output.console import Notice, format_age
from toolyard.cli.output.progress import EARLY_OUTPUT_SECONDS
from toolyard.cli.output.servers import ServerSummary, describe_server_info
from toolyard.core.agents import add_stored_agents
from toolyard.errors import CallTimeout, ServerError, ToolRefused, Unreachable
from toolyard.library import Toolyard
from toolyard.results import ResultLimits
from toolyard.types.call import ApprovalRequest, HiddenTool
from toolyard.types.server import Server, State, Status, Timeouts
from toolyard.types.tool import Catalogue, Result

__all__ = ["LocalBackend"]

_MAX_STDERR_LINES = 5


class LocalBackend:
    """Works on an open Toolyard object."""

    outlives_command = False

    def __init__(self, yard: Toolyard, data_dir: Path) -> None:
        self._yard = yard
        self._data_dir = data_dir
        self._memory = notices.NoticeMemory(data_dir, yard.configuration.file)

    async def _load_agent(self, name: str | None) -> None:
        """Make agents that were created in the pages available, unless AGENTS.md has this one."""
        yard = self._yard
        yard.agents = await add_stored_agents(yard.agents, name, yard.settings, self._data_dir)

    # Tools.

    async def list_tools(
        self, request: ToolsRequest, on_early: Callable[[PartialTools], None] | None = None
    ) -> ToolsReport:
        """Return the tools, from the stored listings where there are some."""
        yard = self._yard
        await self._load_agent(request.agent)
        if request.server is not None:
            self._require_enabled_server(request.server)
        options: dict[str, Any] = {
            name: getattr(request, name)
            for name in ("agent", "bundles", "server", "provider", "fresh", "mode")
        }
        listing = asyncio.ensure_future(_list_tools(yard, options))
        try:
            if on_early is not None and request.server is None and request.mode is None:
                await asyncio.wait({listing}, timeout=EARLY_OUTPUT_SECONDS)
                if not listing.done():
                    known = await yard.search(
                        "", limit=sys.maxsize, agent=request.agent, bundles=request.bundles
                    )
                    on_early(PartialTools(known, self._find_awaited_servers(request.agent)))
            tools = await listing
        finally:
            listing.cancel()
        return self._build_tools_report(request, tools)

    def _build_tools_report(self, request: ToolsRequest, tools: list[Any]) -> ToolsReport:
        yard, server = self._yard, request.server
        roster, configuration = yard.known(), yard.configuration
        failures = {id: error for id, error in roster.failures.items() if server in (None, id)}
        hidden = [
            each
            for each in yard.hidden(agent=request.agent, bundles=request.bundles)
            if server in (None, each.server)
        ]
        invalid = {
            one.id: one.problem_text
            for one in configuration.servers.values()
            if one.problems and server in (None, one.id)
        }
        return ToolsReport(
            tools if request.provider is None else [],
            None if request.provider is None else tools,
            {id: round(one.age, 3) for id, one in roster.catalogues.items()},
            {
                id: notices.clean_server_text(error.cause, configuration.servers.get(id))
                for id, error in failures.items()
            }
            | invalid,
            [str(one) for one in roster.quarantined()],
            hidden,
            list(self._find_tools_notices(request, failures, hidden)) if request.has_notices else [],
        )

    def _find_tools_notices(
        self, request: ToolsRequest, failures: dict[str, ServerError], hidden: list[HiddenTool]
    ) -> Iterator[Notice]:
        yard, server = self._yard, request.server
        roster, configuration = yard.known(), yard.configuration
        if request.provider is None:
            yield from notices.no_servers_notices(configuration, self._data_dir)
        yield from notices.configuration_notices(configuration)
        memory = self._memory if server is None and not request.shows_hidden else None
        yield from notices.quarantined_tools_notices(roster, server, memory)
        yield from notices.unaccepted_tools_notices(roster, yard.locks, self._memory)
        yield from notices.stale_listing_notices(roster, server)
        yield from notices.failure_notices(failures, configuration, memory)
        if request.agent is not None:
            yield from notices.agent_problem_notices(yard.agent_problems(request.agent))
        if request.agent is None and not request.bundles:
            yield from notices.servers_without_tools_notices(roster, hidden, configuration)
        are_shown = request.shows_hidden or request.provider is not None
        yield from notices.hidden_tools_notices(hidden, are_shown=are_shown)

    def _require_enabled_server(self, server_id: str) -> None:
        servers = self._yard.configuration.servers
        server = servers.get(server_id)
        if server is None:
            raise unknown_server_error(server_id, servers)
        if not server.enabled:
            if server.problems:
                raise Unreachable(server.problem_text, server=server_id, hint=server.problem_hint)
            cause = f"is disabled: {server.disabled_reason or 'turned off in its entry'}"
            raise Unreachable(cause, server=server_id)

    def _find_unlisted_servers(self) -> list[str]:
        known = self._yard.known().catalogues
        servers = self._yard.configuration.servers.values()
        return [one.id for one in servers if one.enabled and one.id not in known]

    def _find_awaited_servers(self, agent_id: str | None) -> list[str]:
        """Return the unlisted servers that may have tools of the agent."""
        unlisted, agent = self._find_unlisted_servers(), self._yard.caller(agent_id).agent
        if agent is None:
            return unlisted
        settings = self._yard.settings
        names = NameAssigner(NameTemplates(settings.naming_template, settings.instance_naming_template))
        return find_possible_servers(agent, {id: names.prefix(id) for id in unlisted})

    async def search(self, request: SearchRequest) -> SearchReport:
        """Search the stored listings. No server is started."""
        yard = self._yard
        await self._load_agent(request.agent)
        tools = await yard.search(
            request.query, limit=request.limit, agent=request.agent, bundles=request.bundles
        )
        found = list(self._find_search_notices()) if request.has_notices else []
        return SearchReport(tools, self._find_unlisted_servers(), found)

    def _find_search_notices(self) -> Iterator[Notice]:
        yield from notices.no_servers_notices(self._yard.configuration, self._data_dir)
        yield from notices.configuration_notices(self._yard.configuration)
        yield from notices.unaccepted_tools_notices(self._yard.known(), self._yard.locks, self._memory)

    # Servers.

    async def list_servers(
        self, request: ServersRequest, on_early: Callable[[EarlyServersReport], None] | None = None
    ) -> ServersReport:
        """Connect to all enabled servers at once, list their tools, and return the state of each."""
        yard = self._yard
        if request.connects and any(server.enabled for server in yard.configuration.servers.values()):
            listing = asyncio.ensure_future(yard.tools(fresh=True, retry=request.retries))
            try:
                if on_early is not None:
                    await asyncio.wait({listing}, timeout=EARLY_OUTPUT_SECONDS)
                    if not listing.done():
                        await yard.search("")  # Loads the listings that have come so far.
                        catalogues, known = yard.known().catalogues, self._summarize_servers(request.connects)
                        done = [each for each in known if _is_done(each, catalogues.get(each.server))]
                        on_early(
                            EarlyServersReport(done, [each.server for each in known if each not in done])
                        )
                await listing
            finally:
                listing.cancel()
        servers = self._summarize_servers(request.connects)
        return ServersReport(servers, list(self._find_server_notices()) if request.has_notices else [])

    def _find_server_notices(self) -> Iterator[Notice]:
        yard = self._yard
        yield from notices.no_servers_notices(yard.configuration, self._data_dir)
        yield from notices.unapproved_file_notices(yard.configuration)
        yield from notices.quarantined_tools_notices(yard.known(), memory=self._memory)
        yield from notices.unaccepted_tools_notices(yard.known(), yard.locks, self._memory)
        yield from notices.servers_without_tools_notices(yard.known(), yard.hidden(), yard.configuration)

    def _summarize_servers(self, has_connected: bool) -> list[ServerSummary]:
        roster, servers = self._yard.known(), self._yard.configuration.servers
        hidden = Counter(each.server for each in self._yard.hidden())
        return [
            _summarize_server(
                servers[id],
                status,
                roster.catalogues.get(id),
                roster.failures.get(id),
                has_connected,
                hidden[id],
            )
            for status in self._yard.servers()
            if (id := status.server) in servers
        ]

    async def restart(self, server: str) -> ServerSummary:
        """Restart a server, and list its tools again."""
        self._require_enabled_server(server)
        await self._yard.restart(server)
        await self._yard.tools(server=server, fresh=True)
        return next(each for each in self._summarize_servers(True) if each.server == server)

    # Calls.

    async def call(
        self, request: CommandCall, on_progress: OnCallProgress, approve: Approve | None = None
    ) -> Result:
        """Call a tool. The result is not limited in length: the limit is for models."""
        yard, seconds = self._yard, request.timeout
        await self._load_agent(request.agent)
        scope: dict[str, Any] = {"agent": request.agent, "bundles": request.bundles}

        async def approve_call(question: ApprovalRequest) -> bool:
            if approve is not None:
                return await approve(question.arguments)
            raise ToolRefused(
                f"'{question.decision.name}' needs an approval, and nobody is available to ask",
                hint="call the tool at a terminal, or set write_tools to 'allow'",
            )

        try:
            async with asyncio.timeout(seconds):
                arguments = request.arguments
                if arguments is None:
                    tool = await yard.find(request.name, **scope)
                    arguments = coerce_key_values(request.argument_words, tool.input_schema)
                return await yard.call(
                    request.name,
                    arguments,
                    **scope,
                    on_progress=on_progress,
                    timeouts=None if seconds is None else Timeouts(silence=seconds, call=seconds),
                    approve=approve_call,
                    result_limit=ResultLimits.UNLIMITED_CHARACTERS,
                )
        except TimeoutError:
            raise CallTimeout(f"'{request.name}' took longer than {seconds:g} s") from None
        except ToolRefused as error:
            raise notices.explain_refusal(error, request.name, yard, request.agent, request.bundles) from None


async def _list_tools(yard: Toolyard, options: dict[str, Any]) -> list[Any]:
    return [*await yard.tools(**options)]


# The states are texts in a summary, as in JSON; the members of ``State`` equal them.
def _is_done(summary: ServerSummary, catalogue: Catalogue | None) -> bool:
    """Return whether a server needs no further wait: it is listed, has failed or is disabled."""
    is_listed = catalogue is not None and not catalogue.stale
    is_waiting = summary.state in (State.READY, State.IDLE, State.CONNECTING)
    return not is_waiting or (summary.state == State.READY and is_listed)


def _summarize_server(
    server: Server,
    status: Status,
    catalogue: Catalogue | None,
    failure: ServerError | None,
    has_connected: bool,
    hidden_count: int,
) -> ServerSummary:
    about, state = describe_server_info(status.server_info), status.state
    if not has_connected:
        about = "never listed" if catalogue is None else f"listed {format_age(catalogue.age)}"
    cause, hint, protocol_version = status.cause, status.hint, status.protocol_version
    if failure is not None:
        # A server whose tools cannot be listed counts as failed, also if an earlier command found that out.
        state = State.FAILED if state in (State.READY, State.IDLE) else state
        cause, hint = cause or failure.cause, hint or failure.hint
    if catalogue is not None:
        protocol_version = protocol_version or catalogue.listing.protocol_version
    lines = [notices.clean_server_text(line, server) for line in status.stderr]
    has_failed = failure is not None or state is State.FAILED
    return ServerSummary(
        server=server.id,
        state=state.value,
        enabled=server.enabled,
        transport=server.transport.type,
        trust=server.trust.value,
        origin=str(server.provenance),
        about=about,
        is_broken=has_failed and (server.enabled or bool(server.problems)),
        cause=None if cause is None else notices.clean_server_text(cause, server),
        hint=hint,
        protocol_version=protocol_version,
        server_info=status.server_info,
        tool_count=None if catalogue is None else len(catalogue.definitions),
        hidden_count=hidden_count,
        token_count=status.token_cost,
        quarantined_tools=() if catalogue is None else tuple(map(str, catalogue.quarantined)),
        listed_seconds_ago=None if catalogue is None else round(catalogue.age, 3),
        stderr_lines=tuple([line for line in lines if line][-_MAX_STDERR_LINES:]),
        processes=status.processes,
    )
