"""What can go wrong with a chat, for those who use it."""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["ChatBusy", "ChatError", "ChatQuotaExceeded", "ChatRefused", "NoSuchChat", "NotHeld"]


class ChatError(ToolyardError):
    """Something about a chat."""


class NoSuchChat(ChatError):
    """There is no such chat, approval or question, or it is another person's."""


class ChatBusy(ChatError):
    """A turn is running or waits for an approval."""


class ChatRefused(ChatError):
    """What was asked for cannot be done with this chat as it is."""


class ChatQuotaExceeded(ChatError):
    """The person's chats, or everybody's, use all the space that they may."""


class NotHeld(ChatError):
    """The turn is not this process's any more: somebody deleted the chat, or took it for interrupted."""
