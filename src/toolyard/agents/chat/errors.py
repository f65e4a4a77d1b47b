"""Errors of chats."""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["ChatBusy", "ChatError", "ChatQuotaExceeded", "ChatRefused", "NoSuchChat", "NotHeld"]


class ChatError(ToolyardError):
    """Base class of all chat errors."""


class NoSuchChat(ChatError):
    """Raised when a chat, approval or question does not exist or belongs to another user."""


class ChatBusy(ChatError):
    """Raised when a turn is already running, or waiting for an approval."""


class ChatRefused(ChatError):
    """Raised when an operation is not possible in the chat's current state."""


class ChatQuotaExceeded(ChatError):
    """Raised when the storage quota of the user, or of the whole installation, is used up."""


class NotHeld(ChatError):
    """Raised when this process no longer holds the turn: the chat was deleted, or another process took it
    over.
    """
