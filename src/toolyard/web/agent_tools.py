"""What an agent has: which tools its model sees or reaches, and for each of the others, why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolyard.catalog.token_estimate import estimate_definition
from toolyard.catalog.tool_listing import Roster
from toolyard.errors import AgentsError, ConfigError, Problem, ServerError, ToolRefused
from toolyard.meta.meta_tools import Offer
from toolyard.policy import select_bundles, unused_patterns
from toolyard.policy.agent_patterns import patterns
from toolyard.policy.glob import any_of
from toolyard.policy.rules.token_scope import covers
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Decision, Surface, Verdict
from toolyard.types.server import NATIVE, Server
from toolyard.web.access.dependencies import Visitor
from toolyard.web.services import Site

__all__ = ["AgentTool", "AgentTools", "Unlisted", "agent_for", "agent_problems", "agents_for", "tools_of"]


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
class Unlisted:
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
    failures: tuple[Unlisted, ...]
    unmatched: tuple[str, ...]
    """Patterns of the agent that none of these names fits."""


def agents_for(site: Site, visitor: Visitor) -> list[Agent]:
    """The agents that this visitor may use, in the order of the file."""
    return [agent for agent in site.agents.values() if _reaches(visitor, agent)]


def agent_for(site: Site, visitor: Visitor, agent_id: str) -> Agent:
    """One of them. Raises AgentsError, the same for what there is not and for what is not theirs."""
    agent = site.agents.get(agent_id)
    if agent is None or not _reaches(visitor, agent):
        there = ", ".join(each.id for each in agents_for(site, visitor)) or "none"
        raise AgentsError(
            [Problem(f"there is no agent '{agent_id}'", path="agent", hint=f"there are: {there}")]
        )
    return agent


def _reaches(visitor: Visitor, agent: Agent) -> bool:
    scope = visitor.scope
    return scope is None or scope.agents is None or bool(any_of(scope.agents)(agent.id))


def agent_problems(site: Site, agent: Agent) -> Sequence[Problem]:
    """What keeps an agent of a good file from being used: bundles that there are not."""
    try:
        select_bundles(agent.bundles, site.configuration.bundles)
    except ConfigError as error:
        path = f"{agent.name}.bundles"
        return [replace(each, file=agent.file, line=agent.line, path=path) for each in error.problems]
    return ()


async def tools_of(site: Site, visitor: Visitor, agent: Agent) -> AgentTools:
    """Every tool that this visitor has, and what becomes of it with an agent. Servers that were never listed
    are asked. Raises ConfigError for an agent that cannot be used."""
    await site.enter(visitor)
    caller = site.as_in_chat(visitor, agent.id, Surface.MODEL_DIRECT)
    through = site.as_in_chat(visitor, agent.id, Surface.MODEL_META)
    parts = site.parts
    roster = await parts.rosters.current(caller.principal)
    offer = parts.meta.offer(roster, caller)
    there = {id_: server for id_, server in _servers(site, visitor).items() if covers(caller.scope, server)}
    found = tuple(_found(site, caller, through, roster, offer, there))
    failures = [
        Unlisted(id_, _label(there[id_]), error) for id_, error in roster.failures.items() if id_ in there
    ]
    for failure in failures:
        parts.calls.hush(failure.error)
    unmatched = unused_patterns(agent.tools or (), [tool.name for tool in found])
    return AgentTools(found, offer.because, tuple(failures), unmatched)


def _servers(site: Site, visitor: Visitor) -> dict[str, Server]:
    """Those that exist for a visitor, with our own."""
    manager = site.parts.manager
    native = manager.find(NATIVE, visitor.principal)
    return {**manager.visible(visitor.principal), **({} if native is None else {NATIVE: native})}


def _found(
    site: Site, caller: Caller, through: Caller, roster: Roster, offer: Offer, there: Mapping[str, Server]
) -> Iterator[AgentTool]:
    calls = site.parts.calls
    may_know = patterns(None if caller.scope is None else caller.scope.tools)
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
            _label(server),
            server.id == NATIVE,
            definition.title,
            definition.description,
            "direct" if direct else "meta" if decision.verdict.shown and offer.meta else None,
            decision.verdict is Verdict.ASK,
            _why(decision),
            estimate_definition(definition),
        )


def _label(server: Server) -> str:
    return "Toolyard" if server.id == NATIVE else server.label or server.id


def _why(decision: Decision) -> str:
    decisive = decision.decisive
    return "" if decisive is None else decisive.reason
