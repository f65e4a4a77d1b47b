"""The callers behind an address or a command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from toolyard.agents.definitions.agents_md import agent_id
from toolyard.errors import AgentsError, Problem
from toolyard.policy import select_bundles
from toolyard.types.account import Right, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Bundle, Server

__all__ = ["find_agent", "gateway_caller", "limit_scope_to_server"]


def gateway_caller(
    agents: Mapping[str, Agent],
    known_bundles: Mapping[str, Bundle],
    *,
    principal: Principal = LOCAL_PRINCIPAL,
    scope: TokenScope | None = None,
    agent: str | None = None,
    bundles: Iterable[str] = (),
    surface: Surface = Surface.MODEL_DIRECT,
) -> Caller:
    """Build a caller of the gateway, which always counts as a model. Raises AgentsError or ConfigError for
    unknown names."""
    known = None if agent is None else find_agent(agents, agent)
    selected = (*(() if known is None else known.bundles), *bundles)
    return Caller(principal, surface, known, select_bundles(selected, known_bundles), scope=scope)


def limit_scope_to_server(scope: TokenScope | None, server: Server) -> TokenScope:
    """Limit a scope to one server, without adding anything to it."""
    name = server.id if server.instance is None else server.instance.slug
    if scope is None:
        return TokenScope(frozenset(Right), servers=(name,))
    return replace(scope, servers=(name,))


def find_agent(agents: Mapping[str, Agent], name: str) -> Agent:
    """Return the agent with this id or name. Raises AgentsError."""
    known = agents.get(name) or agents.get(agent_id(name))
    if known is None:
        there = ", ".join(agents) or "none"
        raise AgentsError([Problem(f"there is no agent '{name}'", path="agent", hint=f"there are: {there}")])
    return known
