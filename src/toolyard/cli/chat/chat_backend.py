"""The tools of a chat in the terminal: everything that the local user may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.agents.chat.errors import ChatRefused
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.definitions.agents_md import agent_id
from toolyard.core.composition import Parts
from toolyard.errors import ConfigError
from toolyard.policy import select_bundles
from toolyard.types.agent import Agent
from toolyard.types.call import Caller
from toolyard.types.chat import Chat
from toolyard.types.decision import Surface
from toolyard.types.principal import LOCAL_PRINCIPAL
from toolyard.types.server import Bundle
from toolyard.web.instance_sync import InstanceSync

__all__ = ["LocalChatBackend"]


@dataclass(slots=True)
class LocalChatBackend:
    """Chat backend for the local user. ``selected`` bundles apply to every chat of this process."""

    parts: Parts
    instance_sync: InstanceSync
    agents: Mapping[str, Agent]
    bundles: Mapping[str, Bundle]
    selected_bundles: tuple[str, ...] = ()
    _callers: dict[tuple[object, ...], Caller] = field(default_factory=dict[tuple[object, ...], Caller])
    """The core caches prepared data per Caller object, so equal callers must be the same object."""

    async def load_tool_set(self, chat: Chat) -> ToolSet:
        caller = self._get_caller(chat)
        await self.instance_sync.sync(LOCAL_PRINCIPAL)
        parts = self.parts
        return ToolSet(parts.manager, parts.tool_directory, parts.call_path, parts.meta_tools, caller)

    async def release_chat(self, chat_id: str) -> None:
        await self.parts.manager.close_dedicated_connections(chat_id)

    def _get_caller(self, chat: Chat) -> Caller:
        if chat.owner != LOCAL_PRINCIPAL.id:
            raise ChatRefused("this chat belongs to somebody else")
        agent = None if chat.agent is None else self._find_agent(chat.agent)
        key = (chat.id, chat.agent, chat.choice)
        if key not in self._callers:
            choice = None if chat.choice is None else frozenset(chat.choice)
            self._callers[key] = Caller(
                LOCAL_PRINCIPAL,
                Surface.MODEL_DIRECT,
                agent,
                self._select_bundles(agent),
                choice,
                chat=chat.id,
            )
        return self._callers[key]

    def _find_agent(self, name: str) -> Agent:
        agent = self.agents.get(name) or self.agents.get(agent_id(name))
        if agent is None:
            there = ", ".join(self.agents) or "none"
            raise ChatRefused(f"there is no agent '{name}' here", hint=f"there are: {there}")
        return agent

    def _select_bundles(self, agent: Agent | None) -> tuple[Bundle, ...]:
        wanted = (*(() if agent is None else agent.bundles), *self.selected_bundles)
        try:
            return select_bundles(wanted, self.bundles)
        except ConfigError as error:
            raise ChatRefused(error.problems[0].message, hint=error.problems[0].hint) from None
