"""Tools of an agent: those visible to its model, and the reason for each hidden one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolyard.agents.definitions.agent_tools import find_tool_problems
from toolyard.catalog.token_costs import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import CallPath
from toolyard.clients.tool_directory import ToolDirectory
from toolyard.concurrency.tasks import iterate_in_steps
from toolyard.core.agents import AgentRoster, find_overriding, unknown_agent_error
from toolyard.core.caller_cache import CallerCache
from toolyard.core.current_config import CurrentConfig
from toolyard.core.instance_sync import InstanceSync
from toolyard.errors import ConfigError, Problem, ServerError, ToolRefused
from toolyard.meta_tools import MetaTools
from toolyard.meta_tools.meta_tools import ExposedTools
from toolyard.policy import select_bundles, unused_patterns
from toolyard.policy.agent_patterns import compile_patterns
from toolyard.policy.glob import compile_globs
from toolyard.policy.rules import scope_covers_server
from toolyard.types.account import RequestUser
from toolyard.types.agent import Agent, StoredAgent
from toolyard.types.call import Caller, Surface, Verdict
from toolyard.types.server import NATIVE_SERVER_ID, Server

__all__ = [
    "AgentDirectory",
    "AgentEntry",
    "AgentTool",
    "AgentTools",
    "ListingFailure",
]


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """An agent in a list, in use or overridden."""

    agent: Agent
    stored: StoredAgent | None = None
    """None for an agent of AGENTS.md."""
    overriding: Agent | StoredAgent | None = None
    """The agent of the same id that is used in its place."""
    is_editable: bool = False

    @property
    def origin(self) -> Literal["file", "own", "shared"]:
        """Place of the definition: a file, the user's own agents, or the shared ones."""
        if self.stored is None:
            return "file"
        return "shared" if self.stored.owner is None else "own"

    @property
    def ref(self) -> str:
        """Id in URLs, also of an agent that is overridden."""
        return self.agent.id if self.stored is None else self.stored.id


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool as seen by an agent in a chat."""

    name: str
    id: str
    server: str
    server_label: str
    native: bool
    title: str | None
    description: str
    through: Literal["direct", "meta"] | None
    """Access of the model: its own definition (direct), the meta tools, or None if hidden."""
    asks: bool
    why: str
    """Reason given by the rule that hides the tool or requires approval; empty if neither applies."""
    rule: str
    """Name of that rule, or empty."""
    tokens: int


@dataclass(frozen=True, slots=True)
class ListingFailure:
    """A server whose tools could not be listed."""

    server: str
    label: str
    error: ServerError


@dataclass(frozen=True, slots=True)
class AgentTools:
    """All known tools that the user's token covers."""

    tools: tuple[AgentTool, ...]
    because: str
    """Reason for offering meta tools, if they are offered."""
    failures: tuple[ListingFailure, ...]
    unmatched: tuple[str, ...]
    """Tool patterns of the agent that match no tool."""


@dataclass(frozen=True, slots=True)
class AgentDirectory:
    """Finds the agents that a user may use, and the tools of each."""

    _config: CurrentConfig
    _roster: AgentRoster
    _callers: CallerCache
    _instances: InstanceSync
    _manager: ConnectionManager
    _tool_directory: ToolDirectory
    _call_path: CallPath
    _meta_tools: MetaTools

    async def list_usable_agents(self, request_user: RequestUser) -> list[Agent]:
        """Return the agents that the user's token covers: those of AGENTS.md in file order, then stored ones
        by name."""
        entries = await self.list_entries(request_user)
        return [each.agent for each in entries if each.overriding is None]

    async def list_entries(self, request_user: RequestUser) -> list[AgentEntry]:
        """Return the usable agents, and stored ones that are overridden, in the same order."""
        stored = await self._roster.storage.list_agents(request_user.user.id)
        overriding = find_overriding(self._config.agents, stored)
        entries = [
            *(AgentEntry(each) for each in self._config.agents.values()),
            *(
                AgentEntry(
                    each.agent, each, overriding.get(each.id), each.owner is not None or request_user.is_admin
                )
                for each in stored
            ),
        ]
        return [each for each in entries if _can_use_agent(request_user, each.agent)]

    async def find_entry(self, request_user: RequestUser, ref: str) -> AgentEntry:
        """Return the agent with this id, or the stored agent with this one.

        Raises the same AgentsError for a missing and for a forbidden agent.
        """
        entries = await self.list_entries(request_user)
        for each in entries:
            if each.ref == ref or (each.agent.id == ref and each.overriding is None):
                return each
        raise unknown_agent_error(ref, [each.agent for each in entries if each.overriding is None])

    def find_bundle_problems(self, agent: Agent) -> Sequence[Problem]:
        """Return the problems of an agent that cannot be used, since it refers to missing bundles."""
        try:
            select_bundles(agent.bundles, self._config.configuration.bundles)
        except ConfigError as error:
            path = f"{agent.name}.bundles"
            return [replace(each, file=agent.file, line=agent.line, path=path) for each in error.problems]
        return ()

    def find_agent_problems(self, request_user: RequestUser, agent: Agent) -> Sequence[Problem]:
        """Return the problems of an agent that refers to missing bundles or tools, or has no tool."""
        if problems := self.find_bundle_problems(agent):
            return problems
        caller = self._get_caller(request_user, agent, Surface.MODEL_META)
        return find_tool_problems(caller, self._tool_directory, self._call_path)

    async def resolve_agent_tools(self, request_user: RequestUser, agent: Agent) -> AgentTools:
        """Return all of the user's tools with the access that an agent has to each.

        Lists the servers that were never listed. Raises ConfigError for an agent that cannot be used.
        """
        await self._instances.sync(request_user.principal)
        caller = self._get_caller(request_user, agent, Surface.MODEL_DIRECT)
        meta_caller = self._get_caller(request_user, agent, Surface.MODEL_META)
        listing = await self._tool_directory.refresh(caller.principal)
        exposed = self._meta_tools.select_exposed_tools(listing, caller)
        servers = {
            id_: server
            for id_, server in self._list_visible_servers(request_user).items()
            if scope_covers_server(caller.scope, server)
        }
        found = self._build_agent_tools(caller, meta_caller, listing, exposed, servers)
        tools = tuple([tool async for tool in iterate_in_steps(found)])
        failures = [
            ListingFailure(id_, _get_server_label(servers[id_]), error)
            for id_, error in listing.failures.items()
            if id_ in servers
        ]
        for failure in failures:
            self._call_path.redact_error(failure.error)
        unmatched = unused_patterns(agent.tools or (), [tool.name for tool in tools])
        return AgentTools(tools, exposed.meta_reason, tuple(failures), unmatched)

    def _get_caller(self, request_user: RequestUser, agent: Agent, surface: Surface) -> Caller:
        # Callers are cached. Without its texts, which do not matter here, an agent in a form costs little.
        bare = replace(agent, prompt="", starters=(), temperature=None)
        return self._callers.get(request_user, bare, chat_surface=surface)

    def _list_visible_servers(self, request_user: RequestUser) -> dict[str, Server]:
        """Return the servers visible to a user, including the built-in one."""
        manager = self._manager
        native = manager.find(NATIVE_SERVER_ID, request_user.principal)
        return {
            **manager.visible_servers(request_user.principal),
            **({} if native is None else {NATIVE_SERVER_ID: native}),
        }

    def _build_agent_tools(
        self,
        caller: Caller,
        meta_caller: Caller,
        listing: ToolListing,
        exposed: ExposedTools,
        servers: Mapping[str, Server],
    ) -> Iterator[AgentTool]:
        calls = self._call_path
        covered_names = compile_patterns(None if caller.scope is None else caller.scope.tools)
        for name, definition in listing.tools.items():
            server = servers.get(definition.server_id)
            if server is None or not covered_names.allows(name):
                continue
            direct = name in exposed.direct
            try:
                # A tool reachable through meta tools is hidden as a direct tool; that must not be reported as
                # the reason, so that such a tool is explained for the meta surface.
                decision = calls.explain(name, caller if direct else meta_caller)
            except ToolRefused:
                continue
            yield AgentTool(
                name,
                definition.id,
                server.id,
                _get_server_label(server),
                server.id == NATIVE_SERVER_ID,
                definition.title,
                definition.description,
                "direct" if direct else "meta" if decision.verdict.is_visible and exposed.meta else None,
                decision.verdict is Verdict.ASK,
                "" if decision.decisive is None else decision.decisive.reason,
                "" if decision.decisive is None else decision.decisive.rule,
                estimate_definition_tokens(definition),
            )


def _can_use_agent(request_user: RequestUser, agent: Agent) -> bool:
    scope = request_user.scope
    return scope is None or scope.agents is None or bool(compile_globs(scope.agents)(agent.id))


def _get_server_label(server: Server) -> str:
    return "Toolyard" if server.id == NATIVE_SERVER_ID else server.label or server.id
