"""Cache of the callers that the core sees for the users of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from toolyard.agents.definitions.agents_md import agent_id
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import AgentsError, Problem
from toolyard.policy import select_bundles
from toolyard.types.account import TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Surface
from toolyard.types.principal import Principal
from toolyard.types.server import Bundle
from toolyard.web.access.dependencies import RequestUser

__all__ = ["CallerCache"]

_CALLER_CACHE_ENTRIES = 4096


class CallerCache:
    """Maps users to callers. Equal users share one caller object, by whose identity the core caches."""

    def __init__(self, agents: Sequence[Agent], bundles: Mapping[str, Bundle]) -> None:
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in agents}
        self._bundles = bundles
        self._callers_by_key: LruCache[tuple[object, ...], Caller] = LruCache(_CALLER_CACHE_ENTRIES)

    def set_bundles(self, bundles: Mapping[str, Bundle]) -> None:
        """Use new bundles, and drop all callers."""
        self._bundles = bundles
        self._callers_by_key.clear()

    def set_agents(self, agents: Sequence[Agent]) -> None:
        """Use new agents, and drop all callers."""
        self.agents = {agent.id: agent for agent in agents}
        self._callers_by_key.clear()

    def get(
        self,
        request_user: RequestUser,
        agent: str | None,
        bundles: Iterable[str],
        *,
        chat_surface: Surface | None = None,
    ) -> Caller:
        """Return the caller for a user, an agent and bundles.

        With ``chat_surface``, the caller has the view of the model in one of the user's chats; it is for
        inspection only. Raises AgentsError for an unknown agent and ConfigError for an unknown bundle.
        """
        key = (request_user.principal, request_user.scope, agent, tuple(bundles), chat_surface)
        caller = self._callers_by_key.get(key)
        if caller is None:
            caller = self._callers_by_key[key] = self._create_caller(*key)
        return caller

    def _create_caller(
        self,
        principal: Principal,
        scope: TokenScope | None,
        agent: str | None,
        bundles: tuple[str, ...],
        chat_surface: Surface | None,
    ) -> Caller:
        found_agent = None if agent is None else self._find_agent(agent)
        selected = bundles if found_agent is None else (*found_agent.bundles, *bundles)
        return Caller(
            principal,
            chat_surface or (Surface.OPERATOR if found_agent is None else Surface.MODEL_DIRECT),
            found_agent,
            select_bundles(selected, self._bundles),
            scope=scope,
            chat=None if chat_surface is None else "",
        )

    def _find_agent(self, name: str) -> Agent:
        found_agent = self.agents.get(name) or self.agents.get(agent_id(name))
        if found_agent is None:
            available = ", ".join(self.agents) or "none"
            problem = Problem(f"unknown agent '{name}'", path="agent", hint=f"available agents: {available}")
            raise AgentsError([problem])
        return found_agent
