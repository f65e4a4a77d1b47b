"""Errors of chats. Those that the store raises are defined in ``toolyard.errors``."""

from __future__ import annotations

from toolyard.errors import ChatChanged, ChatError, ChatQuotaExceeded, NoSuchChat, NotHeld

__all__ = [
    "ChatBusy",
    "ChatChanged",
    "ChatError",
    "ChatQuotaExceeded",
    "ChatRefused",
    "NoSuchChat",
    "NotHeld",
]


class ChatBusy(ChatError):
    """Raised when a turn is already running, or waiting for an approval."""

    def __init__(self) -> None:
        cause = "a turn is already running in this chat, or waiting for your answer"
        super().__init__(cause, hint="stop the turn, or answer its question")


class ChatRefused(ChatError):
    """Raised when an operation is not possible in the chat's current state."""
