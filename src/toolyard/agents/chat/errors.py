"""Errors of chats. Those that the store raises are defined in ``toolyard.errors``."""

from __future__ import annotations

from toolyard.errors import ChatError, ChatQuotaExceeded, NoSuchChat, NotHeld

__all__ = ["ChatBusy", "ChatError", "ChatQuotaExceeded", "ChatRefused", "NoSuchChat", "NotHeld"]


class ChatBusy(ChatError):
    """Raised when a turn is already running, or waiting for an approval."""


class ChatRefused(ChatError):
    """Raised when an operation is not possible in the chat's current state."""
