"""The library's face: open a yard, see its tools, call them, ask why."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from toolyard.agents.definitions.agents_md import agent_id, find_agents_file, read_agents
from toolyard.auth import AuthProvider
from toolyard.catalog.lock import Change, LockFile
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients import Callbacks
from toolyard.clients.call_path import ApprovalHandler
from toolyard.clients.session import OnProgress
from toolyard.config import default_data_dir, load_config, load_settings, parse_config
from toolyard.config.settings.table import Settings
from toolyard.core.composition import build_core
from toolyard.errors import AgentsError, Problem, ToolyardError, Unreachable
from toolyard.meta import META_TOOLS, RESULT_READ_TOOL, ToolMode
from toolyard.policy import build_refusal, select_bundles
from toolyard.results import ResultLimits, error_to_result
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, CallRecord
from toolyard.types.config import Configuration
from toolyard.types.decision import Decision, Surface
from toolyard.types.principal import LOCAL_PRINCIPAL
from toolyard.types.result import Result
from toolyard.types.server import Timeouts, Trust
from toolyard.types.status import Status
from toolyard.types.tool import Definition, Tool

if TYPE_CHECKING:
    from toolyard.yard_sync import SyncToolyard

__all__ = ["AgentSource", "ConfigSource", "Toolyard"]

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Configuration | None
AgentSource: TypeAlias = str | os.PathLike[str] | Sequence[Agent] | None
ProviderName: TypeAlias = Literal["openai", "openai-strict", "openai-responses", "anthropic", "gemini"]


class Toolyard:
    """Every configured server behind one object. Use ``async with Toolyard.open() as yard``.

    Nothing is started before a tool is listed or called. Belongs to the event loop that opened it.
    """

    def __init__(
        self,
        configuration: Configuration,
        settings: Settings,
        agents: Sequence[Agent],
        data_dir: Path | None,
        *,
        callbacks: Callbacks | None = None,
        auth_providers: Mapping[str, AuthProvider] | None = None,
        approve: ApprovalHandler | None = None,
        record: Callable[[CallRecord], None] | None = None,
    ) -> None:
        self.configuration = configuration
        self.settings = settings
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in agents}
        self._owner_pid = os.getpid()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open_guard = _OpenGuard()
        self._token_costs: dict[str, int] = {}
        self._caller_cache: dict[tuple[str | None, tuple[str, ...], bool], Caller] = {}
        self._tools_cache: tuple[Mapping[str, Definition], Mapping[str, Tool]] | None = None
        self._core = build_core(
            configuration,
            settings,
            data_dir=data_dir,
            callbacks=callbacks,
            auth_providers=auth_providers,
            approve=approve,
            record=record,
            on_list_changed=self._on_list_changed,
        )

    @classmethod
    def open(
        cls,
        config: ConfigSource = None,
        *,
        agents: AgentSource = None,
        settings: Mapping[str, Any] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        callbacks: Callbacks | None = None,
        auth_providers: Mapping[str, AuthProvider] | None = None,
        approve: ApprovalHandler | None = None,
        record: Callable[[CallRecord], None] | None = None,
    ) -> Toolyard:
        """Read the configuration and make a yard of it.

        ``config`` is a path, a mapping or a loaded configuration; None looks in the usual places.
        ``agents`` is the path of an AGENTS.md or agents; None takes the one in the data directory, if any.
        ``settings`` overrides settings by name. Raises ConfigError or AgentsError.
        """
        folder = Path(data_dir) if data_dir is not None else default_data_dir()
        chosen = load_settings(folder, overrides=settings)
        return cls(
            _load_configuration(config, folder),
            chosen,
            _load_agents(agents, chosen, folder),
            folder,
            callbacks=callbacks,
            auth_providers=auth_providers,
            approve=approve,
            record=record,
        )

    @classmethod
    def open_sync(cls, config: ConfigSource = None, **options: Any) -> SyncToolyard:
        """The same for programs without an event loop, safe in any thread. Takes what ``open`` takes."""
        from toolyard.yard_sync import SyncToolyard  # only scripts need a thread of ours

        return SyncToolyard(lambda: cls.open(config, **options))

    async def __aenter__(self) -> Toolyard:
        await self._core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection and end every child, within a bounded time. May be called twice."""
        self._open_guard.is_closed = True
        if os.getpid() != self._owner_pid:
            # A fork has a copy: what there is to close is its parent's.
            return
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._core.close()

    # Seeing.

    @overload
    async def tools(
        self,
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
        server: str | None = None,
        provider: None = None,
        fresh: bool = False,
        mode: ToolMode | None = None,
    ) -> list[Tool]: ...

    @overload
    async def tools(
        self,
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
        server: str | None = None,
        provider: ProviderName,
        fresh: bool = False,
        mode: ToolMode | None = None,
    ) -> list[dict[str, Any]]: ...

    async def tools(
        self,
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
        server: str | None = None,
        provider: ProviderName | None = None,
        fresh: bool = False,
        mode: ToolMode | None = None,
    ) -> list[Tool] | list[dict[str, Any]]:
        """The tools that this caller gets to see, sorted by name.

        With ``provider`` they come ready for that API, and are those that a model may see. A server that
        cannot be listed is left out; ``servers()`` says why. ``fresh`` asks every server again. ``mode``
        "meta" gives the meta tools, through which all others are reached, "direct" never does; without it
        the agent's mode counts, and the meta tools come along where something can be reached through them
        only.
        """
        caller = self.caller(agent, bundles, model=provider is not None)
        only = None if server is None else [self._require_server(server)]
        rosters = self._core.tool_directory
        with self._open_guard:
            if mode == "meta" and not fresh:
                # They are the same, whoever has not answered yet.
                roster = await rosters.refresh_within_deadline(LOCAL_PRINCIPAL, only=only)
            else:
                roster = await rosters.refresh(LOCAL_PRINCIPAL, fresh=fresh, only=only)
            offer = self._core.meta_tools.offer(roster, caller, mode)
            meta = dict(offer.meta)
            if not meta and mode is None and await self._core.meta_tools.has_stored_results(caller):
                meta = {RESULT_READ_TOOL.name: RESULT_READ_TOOL}
        if server is not None:
            meta = {}
        shown = {**offer.direct, **meta}
        if provider is None:
            made = self._build_tools(roster)
            tools = [
                made[name] if name in offer.direct else _make_tool(name, meta[name]) for name in sorted(shown)
            ]
            return tools if server is None else [tool for tool in tools if tool.server == server]
        from toolyard.catalog.schemas.provider_schema import (
            ProviderApi as Api,  # loaded by those who talk to a model
        )
        from toolyard.catalog.schemas.provider_schema import build_provider_tool

        return [
            build_provider_tool(shown[name], name, Api(provider)).tool
            for name in sorted(shown)
            if server in (None, shown[name].server_id)
        ]

    async def search(
        self, query: str, *, limit: int = 10, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> list[Tool]:
        """The tools that fit some words, best first, among those that this caller can reach.

        Speaks of what was listed so far, in this process or an earlier one, and starts nothing.
        """
        caller = self.caller(agent, bundles)
        with self._open_guard:
            roster = await self._core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        made = self._build_tools(roster)
        return [made[name] for name in self._core.meta_tools.search(roster, query, caller, limit)]

    def why(self, name: str, *, agent: str | None = None, bundles: Iterable[str] = ()) -> Decision:
        """Whether this caller may see and call a tool, and the chain of rules that says so.

        ``name`` is an exposed name or a canonical id. Speaks of what was listed so far, in this process or
        an earlier one, and starts nothing. Raises ToolRefused where no such tool is known.
        """
        return self._core.call_path.explain(name, self.caller(agent, bundles))

    async def find(self, name: str, *, agent: str | None = None, bundles: Iterable[str] = ()) -> Tool:
        """One tool that this caller gets to see, by its exposed name.

        Lists no more servers than that takes. Raises what ``call`` raises before it calls.
        """
        caller = self.caller(agent, bundles)
        calls = self._core.call_path
        if name in META_TOOLS:
            return _make_tool(name, META_TOOLS[name])
        with self._open_guard:
            located = await self._core.tool_directory.locate_tool(name, LOCAL_PRINCIPAL)
        if located is None:
            for server_id, failure in self.known().failures.items():
                if calls.can_see_unknown_tool(server_id, name, caller):
                    calls.redact_error(failure)
                    raise failure
        definition = calls.shown(self.known(), caller).get(name)
        if definition is None:
            raise build_refusal(name, calls.shown(self.known(), caller))
        return _make_tool(name, definition)

    def known(self) -> ToolListing:
        """What was learned so far: catalogues and their age, names, tools set aside, servers that failed.

        Asks nobody, and shows what no caller may see: it is for the operator.
        """
        return self._core.tool_directory.known_listing(LOCAL_PRINCIPAL)

    @property
    def lock(self) -> LockFile | None:
        """The lock that the tools are held against; None where there is no place for one."""
        return self._core.locks.file

    async def changes(self, server: str | None = None) -> list[Change]:
        """Return what servers have that was not accepted: tools in quarantine, and changed instructions.

        It is compared with ``mcp.lock``, or without one with the first listing of a pinned server. Raises
        ToolyardError where the accepted definitions cannot be read.
        """
        only = None if server is None else [self._require_server(server)]
        with self._open_guard:
            roster = await self._core.tool_directory.refresh(LOCAL_PRINCIPAL, only=only)
            found = [
                await self._core.locks.changes(entry, catalogue.contents)
                for id, entry in self.configuration.servers.items()
                if (only is None or id in only) and (catalogue := roster.catalogues.get(id)) is not None
            ]
        return [change for changes in found for change in changes]

    async def accept(self, changes: Iterable[Change]) -> list[Change]:
        """Accept changes as ``changes`` returned them, and no others; return what was accepted.

        Raises ToolyardError where one of them is not current any more; nothing is accepted then for its
        server.
        """
        keys: dict[str, list[str]] = {}
        for change in changes:
            keys.setdefault(change.server_id, []).append(change.key)
        done: list[Change] = []
        with self._open_guard:
            for server_id, wanted in keys.items():
                server = self.configuration.servers[self._require_server(server_id)]
                roster = await self._core.tool_directory.refresh(LOCAL_PRINCIPAL, only=[server_id])
                contents = roster.catalogues[server_id].contents
                done += await self._core.locks.accept(server, contents, wanted)
        return done

    @property
    def locks(self) -> CombinedLocks:
        """Every lock that the tools are compared with."""
        return self._core.locks

    def servers(self) -> list[Status]:
        """One status record a server, with what the definitions of its tools cost a model, estimated."""
        return self._complete_statuses(self._core.manager.statuses())

    async def connect(self, servers: Iterable[str] | None = None) -> list[Status]:
        """Connect now instead of at the first call. Failures are in the records, not raised."""
        wanted = None if servers is None else [self._require_server(server) for server in servers]
        with self._open_guard:
            statuses = await self._core.manager.connect(wanted)
        return self._complete_statuses(statuses)

    async def restart(self, server: str) -> None:
        """Close a server's connection and forget why it failed; the next call connects."""
        await self._core.manager.restart(self._require_server(server))

    # Calling.

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
        provider: ProviderName | None = None,
        on_progress: OnProgress | None = None,
        timeouts: Timeouts | None = None,
    ) -> Result:
        """Call a tool by its exposed name.

        ``provider`` says for whose API the tool was shown to the model that made the arguments: what that
        view added to the schema is taken out of them again. A tool's own failure is a result with
        ``is_error``. Raises ToolRefused where the caller may not, or there is no such tool; otherwise a
        ServerError that says what happened. A meta tool raises nothing: its answer says whether it is ok.
        """
        caller = self.caller(agent, bundles, model=provider is not None)
        if provider is not None and arguments is not None:
            arguments = self._restore_arguments(name, arguments, provider)
        with self._open_guard:
            if name in META_TOOLS:
                return await self._core.meta_tools.result(name, arguments, caller, on_progress=on_progress)
            return await self._core.call_path.call(
                name, arguments, caller, on_progress=on_progress, timeouts=timeouts
            )

    async def answer(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """As ``call``, but an error becomes a result too: what a model is given, so that its turn goes on."""
        try:
            return await self.call(name, arguments, **options)
        except ToolyardError as error:
            server = self.configuration.servers.get(getattr(error, "server", ""))
            trust = server.trust if server is not None else Trust.TRUSTED
            secrets = self._core.call_path.server_secrets(server) if server is not None else ()
            return error_to_result(error, ResultLimits(self.settings.result_limit), trust, secrets=secrets)

    def caller(self, agent: str | None = None, bundles: Iterable[str] = (), *, model: bool = False) -> Caller:
        """Who calls; ``model`` says that one does, as it does for an agent. Raises AgentsError or ConfigError
        for an agent or a bundle that there is not."""
        key = (agent, tuple(bundles), model or agent is not None)
        caller = self._caller_cache.get(key)
        if caller is None:
            if len(self._caller_cache) >= _MAX_CACHED_CALLERS:
                self._caller_cache.clear()
            caller = self._caller_cache[key] = self._new_caller(*key)
        return caller

    def _new_caller(self, agent: str | None, bundles: tuple[str, ...], model: bool) -> Caller:
        surface = Surface.MODEL_DIRECT if model else Surface.OPERATOR
        if agent is None:
            return Caller(surface=surface, bundles=select_bundles(bundles, self.configuration.bundles))
        known = self.agents.get(agent) or self.agents.get(agent_id(agent))
        if known is None:
            there = ", ".join(self.agents) or "none"
            raise AgentsError([Problem(f"there is no agent '{agent}'", hint=f"there are: {there}")])
        selected = (*known.bundles, *bundles)
        return Caller(
            surface=surface, agent=known, bundles=select_bundles(selected, self.configuration.bundles)
        )

    def _complete_statuses(self, statuses: Iterable[Status]) -> list[Status]:
        """The records for others: without secrets, and with what is known of the tools."""
        catalogues = self.known().catalogues
        told: list[Status] = []
        for status in map(self._core.call_path.redact_status, statuses):
            if (catalogue := catalogues.get(status.server)) is not None:
                tools = catalogue.definitions
                cost = self._token_costs.get(catalogue.content_hash)
                if cost is None:
                    cost = self._token_costs[catalogue.content_hash] = sum(
                        map(estimate_definition_tokens, tools)
                    )
                status = replace(status, tool_count=len(tools), token_cost=cost)
            told.append(status)
        return told

    def _require_server(self, server: str) -> str:
        """The id, if there is such a server. Raises Unreachable."""
        if server not in self.configuration.servers:
            there = ", ".join(self.configuration.servers) or "none"
            raise Unreachable("there is no such server", server=server, hint=f"there are: {there}")
        return server

    def _restore_arguments(
        self, name: str, arguments: Mapping[str, Any], provider: ProviderName
    ) -> Mapping[str, Any]:
        from toolyard.catalog.schemas.provider_schema import (
            ProviderApi as Api,  # loaded by those who talk to a model
        )
        from toolyard.catalog.schemas.provider_schema import build_provider_tool

        definition = META_TOOLS.get(name) or self.known().tools.get(name)
        return (
            arguments
            if definition is None
            else build_provider_tool(definition, name, Api(provider)).arguments(arguments)
        )

    def _build_tools(self, listing: ToolListing) -> Mapping[str, Tool]:
        """All tools for programs, by name, made once for as long as there are the same ones."""
        if self._tools_cache is None or self._tools_cache[0] is not listing.tools:
            made = {name: _make_tool(name, definition) for name, definition in listing.tools.items()}
            self._tools_cache = (listing.tools, made)
        return self._tools_cache[1]

    def _on_list_changed(self, server_id: str) -> None:
        if self._open_guard.is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._core.handle_list_changed(server_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_MAX_CACHED_CALLERS = 256


class _OpenGuard:
    """Who still waits when the yard is closed hears that, and is not cancelled."""

    __slots__ = ("is_closed",)

    def __init__(self) -> None:
        self.is_closed = False

    def __enter__(self) -> None:
        if self.is_closed:
            raise Unreachable("the yard is closed")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_closed and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise Unreachable("the yard is closed") from None


def _make_tool(name: str, definition: Definition) -> Tool:
    return Tool(
        name,
        definition.id,
        definition.server_id,
        definition.title,
        definition.description,
        definition.input_schema,
        definition.output_schema,
        definition.annotations,
    )


def _load_configuration(config: ConfigSource, data_dir: Path) -> Configuration:
    if isinstance(config, Configuration):
        return config
    if isinstance(config, Mapping):
        return parse_config(config, env=os.environ)
    return load_config(config, data_dir=data_dir)


def _load_agents(agents: AgentSource, settings: Settings, data_dir: Path) -> Sequence[Agent]:
    if agents is None:
        path = find_agents_file(settings.agents_path, data_dir)
        return () if path is None else read_agents(path).agents
    if isinstance(agents, str | os.PathLike):
        return read_agents(Path(agents)).agents
    return agents
