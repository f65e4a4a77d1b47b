"""Cache of the callers that the core sees for the users of requests."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.agents.definitions.agents_md import agent_id
from toolyard.concurrency.lru_cache import LruCache
from toolyard.core.current_config import CurrentConfig
from toolyard.errors import AgentsError, Problem
from toolyard.policy import select_bundles
from toolyard.types.account import RequestUser, TokenScope
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.decision import Surface
from toolyard.types.principal import Principal

__all__ = ["CallerCache"]

_CALLER_CACHE_ENTRIES = 4096


class CallerCache:
    """Maps users to callers. Equal users share one caller object, by whose identity the core caches."""

    def __init__(self, config: CurrentConfig) -> None:
        self._config = config
        self._callers_by_key: LruCache[tuple[object, ...], Caller] = LruCache(_CALLER_CACHE_ENTRIES)

    def get(
        self, request_user: RequestUser, *, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> Caller:
        """Return the caller for a user, an agent and bundles.

        Raises AgentsError for an unknown agent and ConfigError for an unknown bundle.
        """
        return self._get(request_user.principal, request_user.scope, agent, tuple(bundles), None)

    def get_for_chat(self, request_user: RequestUser, agent: str, surface: Surface) -> Caller:
        """Return a caller with the view of the model in a chat of this user with this agent.

        For inspection only: no tool is called with it. Raises AgentsError for an unknown agent and
        ConfigError for an unknown bundle.
        """
        return self._get(request_user.principal, request_user.scope, agent, (), surface)

    def _get(
        self,
        principal: Principal,
        scope: TokenScope | None,
        agent: str | None,
        bundles: tuple[str, ...],
        chat_surface: Surface | None,
    ) -> Caller:
        # Callers of an earlier configuration are not found under its revision, and leave the cache in time.
        key = (principal, scope, agent, bundles, chat_surface, self._config.revision)
        caller = self._callers_by_key.get(key)
        if caller is None:
            caller = self._create_caller(principal, scope, agent, bundles, chat_surface)
            self._callers_by_key[key] = caller
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
            select_bundles(selected, self._config.configuration.bundles),
            scope=scope,
            chat=None if chat_surface is None else "",
        )

    def _find_agent(self, name: str) -> Agent:
        agents = self._config.agents
        found_agent = agents.get(name) or agents.get(agent_id(name))
        if found_agent is None:
            available = ", ".join(agents) or "none"
            problem = Problem(f"unknown agent '{name}'", path="agent", hint=f"available agents: {available}")
            raise AgentsError([problem])
        return found_agent
