"""Who calls, as the call path sees them: prepared once for each visitor, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from toolyard.agents.definitions.agents_md import agent_id
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
    """Makes callers of visitors. The same visitor gets the same caller, under which the core keeps things."""

    def __init__(self, agents: Sequence[Agent], bundles: Mapping[str, Bundle]) -> None:
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in agents}
        self._bundles = bundles
        self._callers_by_key: OrderedDict[tuple[object, ...], Caller] = OrderedDict()

    def change(self, bundles: Mapping[str, Bundle]) -> None:
        """There are other bundles now."""
        self._bundles = bundles
        self._callers_by_key.clear()

    def set_agents(self, agents: Sequence[Agent]) -> None:
        """There are other agents now."""
        self.agents = {agent.id: agent for agent in agents}
        self._callers_by_key.clear()

    def get(
        self,
        visitor: RequestUser,
        agent: str | None,
        bundles: Iterable[str],
        *,
        chat_surface: Surface | None = None,
    ) -> Caller:
        """Raises AgentsError or ConfigError for what there is not. ``in_chat``: as the model of one of the
        visitor's chats would see things, by this way, to look at them; nothing is called in its name."""
        key = (visitor.principal, visitor.scope, agent, tuple(bundles), chat_surface)
        caller = self._callers_by_key.get(key)
        if caller is None:
            caller = self._callers_by_key[key] = self._create_caller(*key)
            if len(self._callers_by_key) > _CALLER_CACHE_ENTRIES:
                self._callers_by_key.popitem(last=False)
        return caller

    def _create_caller(
        self,
        principal: Principal,
        scope: TokenScope | None,
        agent: str | None,
        bundles: tuple[str, ...],
        chat_surface: Surface | None,
    ) -> Caller:
        known = None if agent is None else self._find_agent(agent)
        selected = bundles if known is None else (*known.bundles, *bundles)
        return Caller(
            principal,
            chat_surface or (Surface.OPERATOR if known is None else Surface.MODEL_DIRECT),
            known,
            select_bundles(selected, self._bundles),
            scope=scope,
            chat=None if chat_surface is None else "",
        )

    def _find_agent(self, name: str) -> Agent:
        known = self.agents.get(name) or self.agents.get(agent_id(name))
        if known is None:
            there = ", ".join(self.agents) or "none"
            problem = Problem(f"there is no agent '{name}'", path="agent", hint=f"there are: {there}")
            raise AgentsError([problem])
        return known
