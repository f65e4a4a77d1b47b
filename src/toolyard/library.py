"""``Toolyard``, the entry point of the library: list tools, call them, and explain policy decisions.

``SyncToolyard`` is its blocking variant, on an event loop in a background thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias, TypeVar, overload

from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.agents.definitions.agents_md import find_agent, load_agents, read_agents
from toolyard.agents.definitions.tools_list import find_possible_servers
from toolyard.auth import AuthProvider
from toolyard.catalog.lock import Change, LockFile
from toolyard.catalog.lock.combined_locks import CombinedLocks
from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients import Callbacks
from toolyard.clients.call_path import ApprovalHandler
from toolyard.concurrency.lru_cache import LruCache
from toolyard.config import default_data_dir, load_config, load_settings, parse_config
from toolyard.config.settings.table import Settings
from toolyard.core.composition import Core, build_core
from toolyard.errors import AgentsError, Problem, ToolyardError, Unreachable
from toolyard.meta_tools import META_TOOLS, RESULT_READ_TOOL, ToolMode
from toolyard.policy import select_bundles
from toolyard.results import ResultLimits
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, CallRecord, Decision, HiddenTool, OnProgress, Surface, ToolCall
from toolyard.types.server import Configuration, Status, Timeouts
from toolyard.types.tool import Definition, Result, Tool

__all__ = ["AgentSource", "ConfigSource", "SyncToolyard", "Toolyard"]

T = TypeVar("T")

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Configuration | None
AgentSource: TypeAlias = str | os.PathLike[str] | Sequence[Agent] | None
ProviderName: TypeAlias = Literal["openai", "openai-strict", "openai-responses", "anthropic", "gemini"]


class Toolyard:
    """All configured servers behind one object. Use ``async with Toolyard.open() as yard``.

    Servers are started when a tool is first listed or called. An instance belongs to the event loop that
    opened it.
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
        core: Core | None = None,
    ) -> None:
        """``core`` is one that others use too: it is not closed with this object, and the arguments after
        ``data_dir`` have no effect."""
        self.configuration = configuration
        self.settings = settings
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in agents}
        self._owner_pid = os.getpid()
        self._open_guard = _OpenGuard()
        self._caller_cache: LruCache[tuple[str | None, tuple[str, ...], bool], Caller] = LruCache(
            _MAX_CACHED_CALLERS
        )
        self._tools_cache: tuple[Mapping[str, Definition], Mapping[str, Tool]] | None = None
        self._owns_core = core is None
        self._core = core or build_core(
            configuration,
            settings,
            data_dir=data_dir,
            callbacks=callbacks,
            auth_providers=auth_providers,
            approve=approve,
            record=record,
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
        """Load the configuration, settings and agents, and return a yard that uses them.

        ``config`` is a path, a mapping or a loaded ``Configuration``; None searches the default locations.
        ``agents`` is the path of an AGENTS.md file or a sequence of agents; None uses the file in the data
        directory, if there is one. ``settings`` overrides single settings by name. ``callbacks`` answer
        requests that servers make, ``auth_providers`` supply credentials and are keyed by the
        ``authProviderId`` of server entries, ``approve`` decides on calls that need an
        approval, and ``record`` is called after every call.

        Raises ConfigError or AgentsError.
        """
        folder = Path(data_dir) if data_dir is not None else default_data_dir()
        loaded_settings = load_settings(folder, overrides=settings)
        return cls(
            _load_configuration(config, folder),
            loaded_settings,
            _load_agents(agents, loaded_settings, folder),
            folder,
            callbacks=callbacks,
            auth_providers=auth_providers,
            approve=approve,
            record=record,
        )

    @classmethod
    def open_sync(cls, config: ConfigSource = None, **options: Any) -> SyncToolyard:
        """Return a blocking, thread-safe variant for programs without an event loop.

        Accepts the arguments of ``open``.
        """
        return SyncToolyard(lambda: cls.open(config, **options))

    async def __aenter__(self) -> Toolyard:
        await self._core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, server: str | None = None) -> None:
        """Close all connections and stop all child processes, within a bounded time. May be called twice.

        With ``server``, close the connection to that server alone; its next call connects again. Raises
        Unreachable for an unknown id.
        """
        if server is not None:
            await self.restart(server)
            return
        self._open_guard.is_closed = True
        if os.getpid() != self._owner_pid:
            # A forked child has a copy of this object, but the connections and processes are its parent's.
            return
        if self._owns_core:
            await self._core.close()

    # Tools and servers.

    @overload
    async def tools(
        self,
        *,
        agent: str | None = None,
        bundles: Iterable[str] = (),
        server: str | None = None,
        provider: None = None,
        fresh: bool = False,
        retry: bool | None = None,
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
        retry: bool | None = None,
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
        retry: bool | None = None,
        mode: ToolMode | None = None,
    ) -> list[Tool] | list[dict[str, Any]]:
        """Return the tools that the caller may see, sorted by name.

        With ``provider``, return tool definitions in the format of that API, limited to the tools that a
        model may see. Servers whose listing fails are omitted; ``servers()`` reports the cause. ``fresh``
        bypasses the cache and lists every server again. Servers whose tools no pattern of the agent can match
        are not contacted. A server that timed out is not tried again for a
        minute, except with ``fresh``; ``retry`` decides otherwise.

        ``mode`` "meta" returns the meta tools, through which all other tools can be searched and called;
        "direct" never returns them. By default the agent's mode applies, and the meta tools are included
        if some tools can be reached only through them.
        """
        caller = self.caller(agent, bundles, model=provider is not None)
        directory = self._core.tool_directory
        only = None if server is None else [self._require_server(server)]
        if only is None and caller.agent is not None and caller.agent.tools is not None:
            prefixes = {id: directory.name_prefix(id) for id in self.configuration.servers}
            only = find_possible_servers(caller.agent, prefixes)
        with self._open_guard:
            if mode == "meta" and not fresh:
                # The meta tools do not depend on the listings, so a slow server need not delay them.
                listing = await directory.refresh_within_deadline(LOCAL_PRINCIPAL, only=only)
            else:
                listing = await directory.refresh(LOCAL_PRINCIPAL, fresh=fresh, retry=retry, only=only)
            exposed = self._core.meta_tools.select_exposed_tools(listing, caller, mode)
            meta = dict(exposed.meta)
            if not meta and mode is None and await self._core.meta_tools.has_stored_results(caller):
                meta = {RESULT_READ_TOOL.name: RESULT_READ_TOOL}
        if server is not None:
            meta = {}
        visible = {**exposed.direct, **meta}
        if provider is None:
            built = self._build_tools(listing)
            tools = [
                built[name] if name in exposed.direct else _make_tool(name, meta[name])
                for name in sorted(visible)
            ]
            return tools if server is None else [tool for tool in tools if tool.server == server]
        # Imported here because only programs that talk to a model need it.
        from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool

        def build_tools(api: ProviderApi) -> list[dict[str, Any]]:
            return [
                build_provider_tool(visible[name], name, api).tool
                for name in sorted(visible)
                if server in (None, visible[name].server_id)
            ]

        return await asyncio.to_thread(build_tools, ProviderApi(provider))

    async def search(
        self, query: str, *, limit: int = 10, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> list[Tool]:
        """Return up to ``limit`` tools that match a query, best first, among those the caller can reach.

        A query without words matches all tools, in order of their servers.

        Searches the listings stored by this process or an earlier one; starts no servers.
        """
        caller = self.caller(agent, bundles)
        with self._open_guard:
            listing = await self._core.tool_directory.load_stored(LOCAL_PRINCIPAL)
        built = self._build_tools(listing)
        found = await self._core.meta_tools.search(listing, query, caller, limit)
        return [built[name] for name in found]

    def why(self, name: str, *, agent: str | None = None, bundles: Iterable[str] = ()) -> Decision:
        """Return the policy decision on whether the caller may see and call a tool, with each rule's verdict.

        ``name`` is an exposed name or a canonical id. Uses the listings stored by this process or an earlier
        one; starts no servers. Raises ToolRefused if the tool is unknown.
        """
        return self._core.call_path.explain(name, self.caller(agent, bundles))

    async def find(self, name: str, *, agent: str | None = None, bundles: Iterable[str] = ()) -> Tool:
        """Return one tool that the caller may see, by its exposed name.

        Lists only the servers needed to find it. Raises ToolRefused if the tool is unknown or hidden, and
        the ServerError of a server that may have the tool but cannot be listed.
        """
        caller = self.caller(agent, bundles)
        if name in META_TOOLS:
            return _make_tool(name, META_TOOLS[name])
        with self._open_guard:
            return _make_tool(name, await self._core.call_path.find_tool(name, caller))

    def hidden(self, *, agent: str | None = None, bundles: Iterable[str] = ()) -> list[HiddenTool]:
        """Return the known tools that policy hides from the caller, each with the rule and its reason.

        Contacts no server. Tools of disabled servers are not among them.
        """
        return self._core.call_path.hidden_tools(self.known(), self.caller(agent, bundles))

    def agent_problems(self, agent: str) -> list[Problem]:
        """Return what is wrong with the tools of an agent: names that do not exist, or no tool at all.

        Uses the listings known so far; starts no servers. Raises AgentsError for an unknown agent.
        """
        core = self._core
        return find_tool_problems(self.caller(agent), core.tool_directory, core.call_path)

    def known(self) -> ToolListing:
        """Return the current listing: catalogues with their age, names, excluded tools and failed servers.

        Contacts no server. The listing is not filtered by policy: it is meant for operators.
        """
        return self._core.tool_directory.known_listing(LOCAL_PRINCIPAL)

    @property
    def lock(self) -> LockFile | None:
        """The lock file that the tools are compared with, or None without a location for one."""
        return self._core.locks.file

    async def changes(self, server: str | None = None) -> list[Change]:
        """Return the changes that need acceptance: tools in quarantine, and changed instructions.

        Servers are compared with ``mcp.lock``; without that file, a pinned server is compared with its first
        listing. Raises ToolyardError if the accepted definitions cannot be read.
        """
        only = None if server is None else [self._require_server(server)]
        with self._open_guard:
            listing = await self._core.tool_directory.refresh(LOCAL_PRINCIPAL, only=only)
            changes_by_server = [
                await self._core.locks.changes(entry, catalogue.contents)
                for id, entry in self.configuration.servers.items()
                if (only is None or id in only) and (catalogue := listing.catalogues.get(id)) is not None
            ]
        return [change for changes in changes_by_server for change in changes]

    async def accept(self, changes: Iterable[Change]) -> list[Change]:
        """Accept exactly these changes, as returned by ``changes()``, and return the accepted ones.

        Raises ToolyardError if one of them is out of date; no change of its server is accepted then.
        """
        keys_by_server: dict[str, list[str]] = {}
        for change in changes:
            keys_by_server.setdefault(change.server_id, []).append(change.key)
        accepted: list[Change] = []
        with self._open_guard:
            for server_id, keys in keys_by_server.items():
                server = self.configuration.servers[self._require_server(server_id)]
                listing = await self._core.tool_directory.refresh(LOCAL_PRINCIPAL, only=[server_id])
                contents = listing.catalogues[server_id].contents
                accepted += await self._core.locks.accept(server, contents, keys)
        return accepted

    @property
    def locks(self) -> CombinedLocks:
        """All locks that the tools are compared with."""
        return self._core.locks

    def servers(self) -> list[Status]:
        """Return one status per server, with the estimated number of tokens of its tool definitions."""
        return self._complete_statuses(self._core.manager.statuses())

    async def connect(self, servers: Iterable[str] | None = None) -> list[Status]:
        """Connect now instead of at the first call, to all servers by default.

        A connection that fails is reported in its status, not raised.
        """
        server_ids = None if servers is None else [self._require_server(server) for server in servers]
        with self._open_guard:
            statuses = await self._core.manager.connect(server_ids)
        return self._complete_statuses(statuses)

    async def restart(self, server: str) -> None:
        """Close a server's connection and clear its failure; the next call connects again."""
        await self._core.manager.restart(self._require_server(server))
        await self._core.catalogues.forget_failures(server)

    # Calls.

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
        approve: ApprovalHandler | None = None,
        result_limit: int | None = None,
    ) -> Result:
        """Call a tool by its exposed name.

        ``approve`` and ``result_limit`` are used for this call in place of the handler of this object and
        the setting of that name.

        ``provider`` is the API whose tool format the model saw when it wrote the arguments: anything that
        the format added to the schema is removed from the arguments again. A failure reported by the tool
        is a result with ``is_error``. Raises ToolRefused if the tool is unknown or the caller may not call
        it, and ServerError for any other failure. Meta tools do not raise: their results report success or
        failure.
        """
        caller = self.caller(agent, bundles, model=provider is not None)
        if provider is not None and arguments is not None:
            arguments = self._restore_arguments(name, arguments, provider)
        limits = self._core.call_path.limits
        call = ToolCall(
            name,
            {} if arguments is None else arguments,
            on_progress=on_progress,
            timeouts=timeouts,
            limits=None if result_limit is None else replace(limits, characters=result_limit),
            approve=approve,
        )
        with self._open_guard:
            if name in META_TOOLS:
                return await self._core.meta_tools.call_for_result(call, caller)
            return await self._core.call_path.call(call, caller)

    async def answer(self, name: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Result:
        """Call a tool like ``call``, but return errors as results, so that a model can react to them."""
        try:
            return await self.call(name, arguments, **options)
        except ToolyardError as error:
            limits = ResultLimits(self.settings.result_limit)
            return self._core.call_path.build_error_result(error, Caller(), limits)

    def caller(self, agent: str | None = None, bundles: Iterable[str] = (), *, model: bool = False) -> Caller:
        """Return the caller that stands for an agent and bundles in policy decisions.

        ``model`` marks calls made by a model; it is implied by an agent. Raises AgentsError for an unknown
        agent and ConfigError for an unknown bundle.
        """
        key = (agent, tuple(bundles), model or agent is not None)
        caller = self._caller_cache.get(key)
        if caller is None:
            caller = self._caller_cache[key] = self._new_caller(*key)
        return caller

    def _new_caller(self, agent: str | None, bundles: tuple[str, ...], model: bool) -> Caller:
        surface = Surface.MODEL_DIRECT if model else Surface.OPERATOR
        if agent is None:
            return Caller(surface=surface, bundles=select_bundles(bundles, self.configuration.bundles))
        definition = find_agent(self.agents, agent)
        if definition is None:
            available = ", ".join(self.agents) or "none"
            raise AgentsError([Problem(f"unknown agent '{agent}'", hint=f"available agents: {available}")])
        selected = (*definition.bundles, *bundles)
        return Caller(
            surface=surface, agent=definition, bundles=select_bundles(selected, self.configuration.bundles)
        )

    def _complete_statuses(self, statuses: Iterable[Status]) -> list[Status]:
        """Redact secrets in statuses, and add the number of tools and their token cost."""
        catalogues = self.known().catalogues
        completed: list[Status] = []
        for status in map(self._core.call_path.redact_status, statuses):
            if (catalogue := catalogues.get(status.server)) is not None:
                tools = catalogue.definitions
                cost = sum(map(estimate_definition_tokens, tools))
                status = replace(status, tool_count=len(tools), token_cost=cost)
            completed.append(status)
        return completed

    def _require_server(self, server: str) -> str:
        """Return the id unchanged if the server is configured. Raises Unreachable."""
        if server not in self.configuration.servers:
            available = ", ".join(self.configuration.servers) or "none"
            raise Unreachable("not configured", server=server, hint=f"configured servers: {available}")
        return server

    def _restore_arguments(
        self, name: str, arguments: Mapping[str, Any], provider: ProviderName
    ) -> Mapping[str, Any]:
        # Imported here because only programs that talk to a model need it.
        from toolyard.catalog.schemas.provider_schema import ProviderApi, build_provider_tool

        definition = META_TOOLS.get(name) or self.known().tools.get(name)
        return (
            arguments
            if definition is None
            else build_provider_tool(definition, name, ProviderApi(provider)).arguments(arguments)
        )

    def _build_tools(self, listing: ToolListing) -> Mapping[str, Tool]:
        """Return all tools of a listing by name; the result is cached until the listing's tools change."""
        if self._tools_cache is None or self._tools_cache[0] is not listing.tools:
            built = {name: _make_tool(name, definition) for name, definition in listing.tools.items()}
            self._tools_cache = (listing.tools, built)
        return self._tools_cache[1]


_MAX_CACHED_CALLERS = 256


class _OpenGuard:
    """Context manager that raises Unreachable if the yard is closed before or during an operation.

    Closing the yard cancels the work that an operation awaits. The caller was not cancelled, so it gets
    Unreachable instead of CancelledError; a cancellation of the caller's own task passes through.
    """

    __slots__ = ("is_closed",)

    def __init__(self) -> None:
        self.is_closed = False

    def __enter__(self) -> None:
        if self.is_closed:
            raise Unreachable("Toolyard is closed")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_closed and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise Unreachable("Toolyard is closed") from None


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
        return load_agents(settings.agents_path, data_dir)
    if isinstance(agents, str | os.PathLike):
        return read_agents(Path(agents)).agents
    return agents


_NOT_OPEN = "Toolyard is not open: use it in a with statement"


class SyncToolyard:
    """Blocking variant of ``Toolyard`` with the same methods. Use it in a ``with`` statement.

    Thread-safe. Every method blocks until its result is available and raises the errors of the method of
    the same name in ``Toolyard``.
    """

    def __init__(self, make: Callable[[], Toolyard]) -> None:
        self._open_factory = make
        self._owner_pid = os.getpid()
        self._yard: Toolyard | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._loop_lock = threading.Lock()
        """Held to submit work and to detach the loop, so that no work is submitted to a stopped loop."""
        self._close_lock = threading.Lock()

    def __enter__(self) -> SyncToolyard:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="toolyard", daemon=True)
        self._thread.start()
        started.wait()
        try:
            self._yard = self._run_and_wait(self._open_yard)
        except BaseException:
            self._stop_loop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, server: str | None = None) -> None:
        """Close all connections, stop all child processes and end the background thread.

        May be called twice, and from any thread except the background thread. With ``server``, close the
        connection to that server alone.
        """
        self._forbid_own_thread()
        if server is not None:
            self._call(lambda yard: yard.close(server))
            return
        if os.getpid() != self._owner_pid:
            # A forked child has a copy of this object without the thread; the connections are its parent's.
            return
        with self._close_lock:
            yard, self._yard = self._yard, None
            try:
                if yard is not None:
                    self._run_and_wait(yard.close)
            finally:
                self._stop_loop()

    def tools(self, **options: Any) -> list[Any]:
        """Return the tools that the caller may see; takes the options of ``Toolyard.tools``."""

        async def list_tools(yard: Toolyard) -> list[Any]:
            return [*await yard.tools(**options)]

        return self._call(list_tools)

    def search(self, query: str, **options: Any) -> list[Tool]:
        """Return the stored tools that match a query, best first."""
        return self._call(lambda yard: yard.search(query, **options))

    def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
        """Call a tool by its exposed name. ``on_progress`` is called in the background thread."""
        return self._call(lambda yard: yard.call(name, arguments, **options))

    def answer(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Result:
        """Call a tool, and return errors as results."""
        return self._call(lambda yard: yard.answer(name, arguments, **options))

    def why(self, name: str, **options: Any) -> Decision:
        """Return the policy decision on a tool, with each rule's verdict."""
        return self._read(lambda yard: yard.why(name, **options))

    def hidden(self, **options: Any) -> list[HiddenTool]:
        """Return the known tools that policy hides from the caller, with the reasons."""
        return self._read(lambda yard: yard.hidden(**options))

    def find(self, name: str, **options: Any) -> Tool:
        """Return one tool that the caller may see, by its exposed name."""
        return self._call(lambda yard: yard.find(name, **options))

    def agent_problems(self, agent: str) -> list[Problem]:
        """Return what is wrong with the tools of an agent."""
        return self._read(lambda yard: yard.agent_problems(agent))

    def known(self) -> ToolListing:
        """Return the current listing without contacting any server."""
        return self._read(lambda yard: yard.known())

    def changes(self, server: str | None = None) -> list[Change]:
        """Return the changes of servers that need acceptance."""
        return self._call(lambda yard: yard.changes(server))

    def accept(self, changes: list[Change]) -> list[Change]:
        """Accept changes returned by ``changes()``, and return the accepted ones."""
        return self._call(lambda yard: yard.accept(changes))

    def servers(self) -> list[Status]:
        """Return one status per server."""
        return self._read(lambda yard: yard.servers())

    def connect(self, servers: list[str] | None = None) -> list[Status]:
        """Connect now instead of at the first call; failures are reported in the statuses."""
        return self._call(lambda yard: yard.connect(servers))

    def restart(self, server: str) -> None:
        """Close a server's connection and clear its failure; the next call connects again."""
        self._call(lambda yard: yard.restart(server))

    async def _open_yard(self) -> Toolyard:
        return await self._open_factory().__aenter__()

    def _call(self, work: Callable[[Toolyard], Coroutine[Any, Any, T]]) -> T:
        yard = self._yard
        if yard is None:
            raise RuntimeError(_NOT_OPEN)
        return self._run_and_wait(lambda: work(yard))

    def _read(self, read: Callable[[Toolyard], T]) -> T:
        """Return what a method of the yard returns that must run in the thread of its loop."""

        async def read_in_loop(yard: Toolyard) -> T:
            return read(yard)

        return self._call(read_in_loop)

    def _run_and_wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._forbid_own_thread()
        if os.getpid() != self._owner_pid:
            raise RuntimeError("this Toolyard was opened in another process: open one in this process")
        with self._loop_lock:
            if self._loop is None:
                raise RuntimeError(_NOT_OPEN)
            future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Unreachable("Toolyard is closed") from None
        except BaseException:
            # The blocked thread was interrupted (KeyboardInterrupt): cancel the call on the loop, too.
            future.cancel()
            raise

    def _run_loop(self, started: threading.Event) -> None:
        # Leaving asyncio.Runner cancels the remaining tasks. Threads blocked on their results then get
        # CancelledError instead of blocking forever on a loop that no longer runs.
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(started.set)
            self._loop.run_forever()

    def _forbid_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            # The event loop runs in this thread: blocking here for a result would be a deadlock.
            raise RuntimeError(
                "SyncToolyard cannot be used in its own background thread: call it from another thread"
            )

    def _stop_loop(self) -> None:
        with self._loop_lock:
            loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(10)
