"""Cache of the callers that the core sees for the users of requests."""

from __future__ import annotations

from collections.abc import Iterable

from toolyard.concurrency.lru_cache import LruCache
from toolyard.core.agents import AgentRoster
from toolyard.core.current_config import CurrentConfig
from toolyard.policy import select_bundles
from toolyard.types.account import RequestUser
from toolyard.types.agent import Agent
from toolyard.types.call import Caller, Surface

__all__ = ["CallerCache"]

_CALLER_CACHE_ENTRIES = 4096


class CallerCache:
    """Maps users to callers. Equal users share one caller object, by whose identity the core caches."""

    def __init__(self, config: CurrentConfig, roster: AgentRoster) -> None:
        self._config = config
        self._roster = roster
        self._callers_by_key: LruCache[tuple[object, ...], Caller] = LruCache(_CALLER_CACHE_ENTRIES)

    async def find(
        self, request_user: RequestUser, agent: str | None = None, bundles: Iterable[str] = ()
    ) -> Caller:
        """Return the caller for a user, an agent by id or name, and bundles.

        Raises AgentsError for an unknown agent and ConfigError for an unknown bundle.
        """
        found = None if agent is None else await self._roster.find(request_user.user.id, agent)
        return self.get(request_user, found, tuple(bundles))

    def get(
        self,
        request_user: RequestUser,
        agent: Agent | None = None,
        bundles: tuple[str, ...] = (),
        chat_surface: Surface | None = None,
    ) -> Caller:
        """Return the caller for a user, an agent and bundles. Raises ConfigError for an unknown bundle.

        With ``chat_surface``, it has the view of the model in a chat of this user with this agent. That is
        for inspection only: no tool is called with it.
        """
        principal, scope = request_user.principal, request_user.scope
        # Callers of an earlier configuration are not found under its revision, and leave the cache in time.
        key = (principal, scope, agent, bundles, chat_surface, self._config.revision)
        caller = self._callers_by_key.get(key)
        if caller is None:
            selected = bundles if agent is None else (*agent.bundles, *bundles)
            caller = self._callers_by_key[key] = Caller(
                principal,
                chat_surface or (Surface.OPERATOR if agent is None else Surface.MODEL_DIRECT),
                agent,
                select_bundles(selected, self._config.configuration.bundles),
                scope=scope,
                chat=None if chat_surface is None else "",
            )
        return caller
