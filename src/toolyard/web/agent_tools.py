"""What an agent has: which tools its model sees or reaches, and for each of the others, why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolyard.catalog.token_estimate import estimate_definition_tokens
from toolyard.catalog.tool_listing import ToolListing
from toolyard.errors import AgentsError, ConfigError, Problem, ServerError, ToolRefused
from toolyard.meta.meta_tools import ToolOffer
from toolyard.policy import select_bundles, unused_patterns
from toolyard.policy.agent_patterns import compile_patterns
from toolyard.policy.glob import compile_globs
from toolyard.policy.rules.token_scope import scope_covers_server
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Surface, Verdict
from toolyard.types.server import NATIVE_SERVER_ID, Server
from toolyard.web.access.dependencies import RequestUser
from toolyard.web.services import Services

__all__ = [
    "AgentTool",
    "AgentTools",
    "ListingFailure",
    "find_agent_problems",
    "find_usable_agent",
    "list_usable_agents",
    "resolve_agent_tools",
]


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool, as an agent in a chat has it."""

    name: str
    id: str
    server: str
    server_label: str
    native: bool
    title: str | None
    description: str
    through: Literal["direct", "meta"] | None
    """How its model gets at it: with a definition of its own, or by the meta tools; None: not at all."""
    asks: bool
    why: str
    """The words of the rule that hides it, or that asks first; empty where nothing stands in the way."""
    tokens: int


@dataclass(frozen=True, slots=True)
class ListingFailure:
    """A server whose tools could not be listed."""

    server: str
    label: str
    error: ServerError


@dataclass(frozen=True, slots=True)
class AgentTools:
    """All tools that are known, by name, as far as the visitor's token reaches."""

    tools: tuple[AgentTool, ...]
    because: str
    """Why there are meta tools, where there are."""
    failures: tuple[ListingFailure, ...]
    unmatched: tuple[str, ...]
    """Patterns of the agent that none of these names fits."""


def list_usable_agents(site: Services, visitor: RequestUser) -> list[Agent]:
    """The agents that this visitor may use, in the order of the file."""
    return [agent for agent in site.agents.values() if _can_use_agent(visitor, agent)]


def find_usable_agent(site: Services, visitor: RequestUser, agent_id: str) -> Agent:
    """One of them. Raises AgentsError, the same for what there is not and for what is not theirs."""
    agent = site.agents.get(agent_id)
    if agent is None or not _can_use_agent(visitor, agent):
        there = ", ".join(each.id for each in list_usable_agents(site, visitor)) or "none"
        raise AgentsError(
            [Problem(f"there is no agent '{agent_id}'", path="agent", hint=f"there are: {there}")]
        )
    return agent


def _can_use_agent(visitor: RequestUser, agent: Agent) -> bool:
    scope = visitor.scope
    return scope is None or scope.agents is None or bool(compile_globs(scope.agents)(agent.id))


def find_agent_problems(site: Services, agent: Agent) -> Sequence[Problem]:
    """What keeps an agent of a good file from being used: bundles that there are not."""
    try:
        select_bundles(agent.bundles, site.configuration.bundles)
    except ConfigError as error:
        path = f"{agent.name}.bundles"
        return [replace(each, file=agent.file, line=agent.line, path=path) for each in error.problems]
    return ()


async def resolve_agent_tools(site: Services, visitor: RequestUser, agent: Agent) -> AgentTools:
    """Every tool that this visitor has, and what becomes of it with an agent. Servers that were never listed
    are asked. Raises ConfigError for an agent that cannot be used."""
    await site.sync_instances(visitor)
    caller = site.get_chat_caller(visitor, agent.id, Surface.MODEL_DIRECT)
    through = site.get_chat_caller(visitor, agent.id, Surface.MODEL_META)
    parts = site.parts
    roster = await parts.tool_directory.refresh(caller.principal)
    offer = parts.meta_tools.offer(roster, caller)
    there = {
        id_: server
        for id_, server in _list_visible_servers(site, visitor).items()
        if scope_covers_server(caller.scope, server)
    }
    found = tuple(_build_agent_tools(site, caller, through, roster, offer, there))
    failures = [
        ListingFailure(id_, _get_server_label(there[id_]), error)
        for id_, error in roster.failures.items()
        if id_ in there
    ]
    for failure in failures:
        parts.call_path.redact_error(failure.error)
    unmatched = unused_patterns(agent.tools or (), [tool.name for tool in found])
    return AgentTools(found, offer.because, tuple(failures), unmatched)


def _list_visible_servers(site: Services, visitor: RequestUser) -> dict[str, Server]:
    """Those that exist for a visitor, with our own."""
    manager = site.parts.manager
    native = manager.find(NATIVE_SERVER_ID, visitor.principal)
    return {
        **manager.visible_servers(visitor.principal),
        **({} if native is None else {NATIVE_SERVER_ID: native}),
    }


def _build_agent_tools(
    site: Services,
    caller: Caller,
    through: Caller,
    roster: ToolListing,
    offer: ToolOffer,
    there: Mapping[str, Server],
) -> Iterator[AgentTool]:
    calls = site.parts.call_path
    may_know = compile_patterns(None if caller.scope is None else caller.scope.tools)
    for name, definition in roster.tools.items():
        server = there.get(definition.server_id)
        if server is None or not may_know.allows(name):
            continue
        direct = name in offer.direct
        try:
            # What a model reaches by the meta tools is hidden from its direct ones, which is no reason.
            decision = calls.explain(name, caller if direct else through)
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
            "direct" if direct else "meta" if decision.verdict.is_visible and offer.meta else None,
            decision.verdict is Verdict.ASK,
            _get_decisive_reason(decision),
            estimate_definition_tokens(definition),
        )


def _get_server_label(server: Server) -> str:
    return "Toolyard" if server.id == NATIVE_SERVER_ID else server.label or server.id


def _get_decisive_reason(decision: Decision) -> str:
    decisive = decision.decisive
    return "" if decisive is None else decisive.reason
