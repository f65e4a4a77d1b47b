"""Items that a person sees as badges: chats at work, and requests that wait for an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["PendingItem", "PendingKind"]


class PendingKind(StrEnum):
    """Reason why an item is listed."""

    RUNNING_CHAT = "running_chat"
    """A turn is running. Nothing is expected of the person."""
    WAITING_CHAT = "waiting_chat"
    """A turn waits for an approval or an answer."""
    APPROVAL = "approval"
    """A call of a program needs approval. Approvals in chats are part of the waiting chat."""
    QUESTION = "question"
    """A server asks a question that no client can answer."""
    PROPOSAL = "proposal"
    """Somebody proposed a server. For admins only."""


@dataclass(frozen=True, slots=True)
class PendingItem:
    """One chat, approval or question."""

    kind: PendingKind
    id: str
    title: str
    """Title of the chat, name of the tool, or name of the server."""
    since: float
