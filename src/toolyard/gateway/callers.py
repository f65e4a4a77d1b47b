"""Who stands behind an address or a command: the caller that a front is made for."""

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
    """A caller at the gateway: whatever asks there, a model is behind it. Raises AgentsError or ConfigError
    for what there is not."""
    known = None if agent is None else find_agent(agents, agent)
    selected = (*(() if known is None else known.bundles), *bundles)
    return Caller(principal, surface, known, select_bundles(selected, known_bundles), scope=scope)


def limit_scope_to_server(scope: TokenScope | None, server: Server) -> TokenScope:
    """The scope of a caller at the address of one server: that server, and nothing that it did not have."""
    name = server.id if server.instance is None else server.instance.slug
    if scope is None:
        return TokenScope(frozenset(Right), servers=(name,))
    return replace(scope, servers=(name,))


def find_agent(agents: Mapping[str, Agent], name: str) -> Agent:
    """The agent of this id or name. Raises AgentsError."""
    known = agents.get(name) or agents.get(agent_id(name))
    if known is None:
        there = ", ".join(agents) or "none"
        raise AgentsError([Problem(f"there is no agent '{name}'", path="agent", hint=f"there are: {there}")])
    return known
