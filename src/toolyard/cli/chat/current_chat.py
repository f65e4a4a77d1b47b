"""The current chat, which is created with its first message: empty chats are not stored."""

from __future__ import annotations

from collections.abc import Mapping

from toolyard.agents.chat.chats import UNCHANGED, ChatService, Unchanged
from toolyard.agents.chat.errors import NoSuchChat
from toolyard.agents.definitions.agents_md import find_agent
from toolyard.cli.invocation import Usage
from toolyard.cli.output.console import one_line
from toolyard.types.account import LOCAL_OWNER_ID, LOCAL_PRINCIPAL
from toolyard.types.agent import Agent
from toolyard.types.chat import Attachment, Chat

__all__ = ["CurrentChat", "find_chat", "find_last_chat"]


class CurrentChat:
    """A chat, or the agent and model for a new one."""

    def __init__(
        self,
        chats: ChatService,
        agents: Mapping[str, Agent],
        chat: Chat | None = None,
        *,
        agent: str | None = None,
        model: str | None = None,
    ) -> None:
        """Raises NoSuchModel, or Usage for an unknown agent."""
        self._chats = chats
        self._agents = agents
        self.chat = chat
        self._agent = None if agent is None else self._resolve_agent_id(agent)
        self._model = model
        self.attachments: list[Attachment] = []
        """Files to send with the next message."""
        if model is not None:
            chats.models.pick(model, LOCAL_PRINCIPAL)

    @property
    def agent(self) -> str | None:
        """Return the agent's id; None for all tools."""
        return self._agent if self.chat is None else self.chat.agent

    @property
    def model(self) -> str | None:
        """Return the model; None if it is unknown."""
        own = self._model if self.chat is None else self.chat.model
        agent = None if self.agent is None else self._agents.get(self.agent)
        default = self._chats.models.default_for(LOCAL_PRINCIPAL)
        return own or (None if agent is None else agent.model) or default

    async def get_or_create(self) -> Chat:
        """Return the chat, and create it if necessary."""
        if self.chat is None:
            self.chat = await self._chats.create(LOCAL_OWNER_ID, agent=self._agent, model=self._model)
        return self.chat

    async def refresh(self) -> Chat:
        """Return the chat with its current data."""
        self.chat = await self._chats.get(LOCAL_OWNER_ID, (await self.get_or_create()).id)
        return self.chat

    async def choose(
        self, *, agent: str | Unchanged | None = UNCHANGED, model: str | Unchanged | None = UNCHANGED
    ) -> None:
        """Choose another agent or model for the next message. Raises like the constructor."""
        if not isinstance(agent, Unchanged) and agent is not None:
            agent = self._resolve_agent_id(agent)
        if not isinstance(model, Unchanged) and model is not None:
            self._chats.models.pick(model, LOCAL_PRINCIPAL)
        if self.chat is not None:
            self.chat = await self._chats.change(LOCAL_OWNER_ID, self.chat.id, agent=agent, model=model)
            return
        self._agent = self._agent if isinstance(agent, Unchanged) else agent
        self._model = self._model if isinstance(model, Unchanged) else model

    def start_new(self) -> None:
        """Prepare a new chat with the same agent and model."""
        if self.chat is not None:
            self._agent, self._model, self.chat = self.chat.agent, self.chat.model, None

    def describe(self) -> str:
        """Describe the chat in one line: title, model and agent."""
        title = "a new chat" if self.chat is None else f"“{one_line(self.chat.title or 'a chat', 60)}”"
        agent = f", agent {self.agent}" if self.agent is not None else ""
        return f"{title} with {one_line(self.model or 'no model', 60)}{agent}"

    def list_agents(self) -> list[tuple[str, str]]:
        """Return the agents to choose from, with descriptions."""
        return [(each.id, each.description) for each in self._agents.values()]

    def list_models(self) -> list[tuple[str, str]]:
        """Return the models to choose from, with descriptions."""
        choices = self._chats.models.choices_for(LOCAL_PRINCIPAL)
        return [(each.id, each.base_url or each.provider) for each in choices]

    def _resolve_agent_id(self, agent: str) -> str:
        found = find_agent(self._agents, agent)
        if found is None:
            there = ", ".join(self._agents) or "none"
            raise Usage(f"unknown agent '{agent}'", hint=f"available agents: {there}")
        return found.id


_MAX_SEARCHED_CHATS = 1_000


async def find_chat(chats: ChatService, id_prefix: str) -> Chat:
    """Return the chat with this id, or the only one whose id has this prefix. Raises NoSuchChat."""
    found = [
        chat
        for chat in await chats.list(LOCAL_OWNER_ID, limit=_MAX_SEARCHED_CHATS)
        if chat.id.startswith(id_prefix)
    ]
    if len(found) == 1:
        return found[0]
    there = "chat not found" if not found else f"{len(found)} chats begin with {id_prefix}"
    raise NoSuchChat(f"{id_prefix}: {there}", hint="`toolyard chat --list` shows their ids")


async def find_last_chat(chats: ChatService) -> Chat:
    """Return the last changed chat. Raises NoSuchChat."""
    for chat in await chats.list(LOCAL_OWNER_ID, limit=1):
        return chat
    raise NoSuchChat("no chat to resume", hint="start one with `toolyard chat`")
