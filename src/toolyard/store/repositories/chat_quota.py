"""Limits for what chats may store, per person and in all.

Every chat has a counter of its bytes, which is kept by the transactions that write its events, so that
nothing is ever summed over events. A limit is checked where a chat or a turn begins: a turn that runs may
finish, and so exceed it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from toolyard.agents.chat.errors import ChatQuotaExceeded
from toolyard.store.sql.tables import chats

__all__ = ["ChatQuota", "ChatUsage", "chat_usage"]

_NOTICE = 0.8
"""Share of a limit from which on people are told."""


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Stored chats of one person, and the bytes of everybody."""

    chats: int
    bytes: int
    bytes_in_all: int


@dataclass(frozen=True, slots=True)
class ChatQuota:
    """0 is no limit."""

    chats: int = 0
    """Chats of one person."""
    bytes: int = 0
    """Bytes of one person."""
    bytes_in_all: int = 0

    def check(self, usage: ChatUsage, *, new_chat: bool = False) -> None:
        """Raise ChatQuotaExceeded where a limit is reached."""
        if new_chat and self.chats and usage.chats >= self.chats:
            raise ChatQuotaExceeded(
                f"You have {usage.chats:,} chats, which is the limit.",
                hint="Delete chats that you no longer need, or ask an admin to raise chat_limit.",
            )
        if self.bytes and usage.bytes >= self.bytes:
            raise ChatQuotaExceeded(
                f"Your chats use {_size(usage.bytes)} of {_size(self.bytes)}.",
                hint="Delete chats that you no longer need, or ask an admin to raise chat_bytes_limit.",
            )
        if self.bytes_in_all and usage.bytes_in_all >= self.bytes_in_all:
            raise ChatQuotaExceeded(
                "The space for everybody's chats is used up.",
                hint="Ask an admin to delete chats, or to raise chat_bytes_limit_all.",
            )

    def notice(self, usage: ChatUsage) -> str | None:
        """Return a warning before a limit is reached."""
        if self.bytes and usage.bytes >= _NOTICE * self.bytes:
            return f"Your chats use {_size(usage.bytes)} of {_size(self.bytes)}. Delete some to make room."
        if self.chats and usage.chats >= _NOTICE * self.chats:
            return f"You have {usage.chats:,} of {self.chats:,} chats. Delete some to make room."
        if self.bytes_in_all and usage.bytes_in_all >= _NOTICE * self.bytes_in_all:
            return "The space for everybody's chats is almost used up."
        return None


def chat_usage(connection: Connection, owner: str) -> ChatUsage:
    """Read the counters."""
    total = func.coalesce(func.sum(chats.c.bytes), 0)
    mine = connection.execute(select(func.count(), total).where(chats.c.owner == owner)).one()
    everybody = connection.execute(select(total)).scalar_one()
    return ChatUsage(int(mine[0]), int(mine[1]), int(everybody))


def _size(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count / 1_000:.1f} kB"
