"""What a chat in the terminal may use: everything of whoever sits at this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import Toolbox
from toolyard.agents.definitions.agents_md import agent_id
from toolyard.core.composition import Parts
from toolyard.errors import ConfigError
from toolyard.policy import select_bundles
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.chat import Chat
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL
from toolyard.types.server import Bundle
from toolyard.web.instance_sync import Holdings

__all__ = ["LocalYard"]


@dataclass(slots=True)
class LocalYard:
    """A ChatYard for one person. ``selected`` are bundles that count in every chat of this process."""

    parts: Parts
    holdings: Holdings
    agents: Mapping[str, Agent]
    bundles: Mapping[str, Bundle]
    selected: tuple[str, ...] = ()
    _callers: dict[tuple[object, ...], Caller] = field(default_factory=dict[tuple[object, ...], Caller])
    """The core keeps what it prepared for a caller under the object itself."""

    async def toolbox(self, chat: Chat) -> Toolbox:
        """See ChatYard."""
        caller = self._caller(chat)
        await self.holdings.of(LOCAL)
        parts = self.parts
        return Toolbox(parts.manager, parts.rosters, parts.calls, parts.meta, caller)

    async def leave(self, chat_id: str) -> None:
        """See ChatYard."""
        await self.parts.manager.end_lanes(chat_id)

    def _caller(self, chat: Chat) -> Caller:
        if chat.owner != LOCAL.id:
            raise ChatRefused("this chat belongs to somebody else")
        agent = None if chat.agent is None else self._agent(chat.agent)
        key = (chat.id, chat.agent, chat.choice)
        if key not in self._callers:
            choice = None if chat.choice is None else frozenset(chat.choice)
            self._callers[key] = Caller(
                LOCAL, Surface.MODEL_DIRECT, agent, self._selected(agent), choice, chat=chat.id
            )
        return self._callers[key]

    def _agent(self, name: str) -> Agent:
        agent = self.agents.get(name) or self.agents.get(agent_id(name))
        if agent is None:
            there = ", ".join(self.agents) or "none"
            raise ChatRefused(f"there is no agent '{name}' here", hint=f"there are: {there}")
        return agent

    def _selected(self, agent: Agent | None) -> tuple[Bundle, ...]:
        wanted = (*(() if agent is None else agent.bundles), *self.selected)
        try:
            return select_bundles(wanted, self.bundles)
        except ConfigError as error:
            raise ChatRefused(error.problems[0].message, hint=error.problems[0].hint) from None
