"""Limits on stored chats, for each user and in total.

Each chat has a byte counter that is updated in the transactions that write its events, so usage is never
summed over events. Limits are checked when a chat or a turn starts. A running turn may finish, and may exceed
them once.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from toolyard.errors import ChatQuotaExceeded
from toolyard.store.sql.tables import chats

__all__ = ["ChatQuota", "ChatUsage", "chat_usage"]

_NOTICE_RATIO = 0.8
"""Share of a limit from which users see a warning."""
_NOTICE_ADVICE = "Delete chats that you no longer need, or ask an admin to raise the limit."


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Number and bytes of one user's chats, and the bytes of all users."""

    chats: int
    bytes: int
    bytes_in_all: int


@dataclass(frozen=True, slots=True)
class ChatQuota:
    """Limits on chats; 0 means no limit."""

    chats: int = 0
    """Chats of one user."""
    bytes: int = 0
    """Bytes of one user."""
    bytes_in_all: int = 0
    """Bytes of all users."""

    def check(self, usage: ChatUsage, *, new_chat: bool = False) -> None:
        """Raise ChatQuotaExceeded if a limit is reached."""
        if new_chat and self.chats and usage.chats >= self.chats:
            raise ChatQuotaExceeded(
                f"You have {usage.chats:,} chats, which is the limit.",
                hint="Delete chats that you no longer need, or ask an admin to raise chat_limit.",
            )
        if self.bytes and usage.bytes >= self.bytes:
            raise ChatQuotaExceeded(
                f"Your chats use {_format_bytes(usage.bytes)} of {_format_bytes(self.bytes)}.",
                hint="Delete chats that you no longer need, or ask an admin to raise chat_bytes_limit.",
            )
        if self.bytes_in_all and usage.bytes_in_all >= self.bytes_in_all:
            raise ChatQuotaExceeded(
                "The storage for all chats is used up.",
                hint="Ask an admin to delete chats, or to raise chat_bytes_limit_all.",
            )

    def notice(self, usage: ChatUsage) -> str | None:
        """Return a warning if usage is close to a limit; otherwise None."""
        if self.bytes and usage.bytes >= _NOTICE_RATIO * self.bytes:
            used, limit = _format_bytes(usage.bytes), _format_bytes(self.bytes)
            return f"Your chats use {used} of {limit}. {_NOTICE_ADVICE}"
        if self.chats and usage.chats >= _NOTICE_RATIO * self.chats:
            return f"You have {usage.chats:,} of {self.chats:,} chats. {_NOTICE_ADVICE}"
        if self.bytes_in_all and usage.bytes_in_all >= _NOTICE_RATIO * self.bytes_in_all:
            return f"The storage for the chats of all users is almost used up. {_NOTICE_ADVICE}"
        return None


def chat_usage(connection: Connection, owner: str) -> ChatUsage:
    """Return the usage of a user, from the counters of the chats."""
    total = func.coalesce(func.sum(chats.c.bytes), 0)
    own = connection.execute(select(func.count(), total).where(chats.c.owner == owner)).one()
    bytes_in_all = connection.execute(select(total)).scalar_one()
    return ChatUsage(int(own[0]), int(own[1]), int(bytes_in_all))


def _format_bytes(count: int) -> str:
    for unit, size in (("GB", 1_000_000_000), ("MB", 1_000_000)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count / 1_000:.1f} kB"
