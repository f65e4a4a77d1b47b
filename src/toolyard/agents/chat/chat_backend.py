"""What chats need of whoever runs them: who their owners are, and what those may use."""

from __future__ import annotations

from typing import Protocol

from toolyard.agents.chat.tool_set import ToolSet
from toolyard.types.chat import Chat

__all__ = ["ChatBackend"]


class ChatBackend(Protocol):
    """One door's people, agents and tools."""

    async def load_tool_set(self, chat: Chat) -> ToolSet:
        """The tools of a chat as they are now. Raises ChatRefused where its owner is gone or disabled, or
        its agent is gone."""
        ...

    async def release_chat(self, chat_id: str) -> None:
        """The chat is over: close the connections that are its own."""
        ...
