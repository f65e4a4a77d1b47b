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
from toolyard.web.access.dependencies import Visitor

__all__ = ["Callers"]

_MOST = 4096


class Callers:
    """Makes callers of visitors. The same visitor gets the same caller, under which the core keeps things."""

    def __init__(self, agents: Sequence[Agent], bundles: Mapping[str, Bundle]) -> None:
        self.agents: Mapping[str, Agent] = {agent.id: agent for agent in agents}
        self._bundles = bundles
        self._kept: OrderedDict[tuple[object, ...], Caller] = OrderedDict()

    def change(self, bundles: Mapping[str, Bundle]) -> None:
        """There are other bundles now."""
        self._bundles = bundles
        self._kept.clear()

    def change_agents(self, agents: Sequence[Agent]) -> None:
        """There are other agents now."""
        self.agents = {agent.id: agent for agent in agents}
        self._kept.clear()

    def of(
        self,
        visitor: Visitor,
        agent: str | None,
        bundles: Iterable[str],
        *,
        in_chat: Surface | None = None,
    ) -> Caller:
        """Raises AgentsError or ConfigError for what there is not. ``in_chat``: as the model of one of the
        visitor's chats would see things, by this way, to look at them; nothing is called in its name."""
        key = (visitor.principal, visitor.scope, agent, tuple(bundles), in_chat)
        caller = self._kept.get(key)
        if caller is None:
            caller = self._kept[key] = self._make(*key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return caller

    def _make(
        self,
        principal: Principal,
        scope: TokenScope | None,
        agent: str | None,
        bundles: tuple[str, ...],
        in_chat: Surface | None,
    ) -> Caller:
        known = None if agent is None else self._agent(agent)
        selected = bundles if known is None else (*known.bundles, *bundles)
        return Caller(
            principal,
            in_chat or (Surface.OPERATOR if known is None else Surface.MODEL_DIRECT),
            known,
            select_bundles(selected, self._bundles),
            scope=scope,
            chat=None if in_chat is None else "",
        )

    def _agent(self, name: str) -> Agent:
        known = self.agents.get(name) or self.agents.get(agent_id(name))
        if known is None:
            there = ", ".join(self.agents) or "none"
            problem = Problem(f"there is no agent '{name}'", path="agent", hint=f"there are: {there}")
            raise AgentsError([problem])
        return known
