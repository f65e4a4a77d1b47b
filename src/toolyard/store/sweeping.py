"""Clears away what has run its time, a little at a time, whichever process comes first.

Most tables end their old rows with the next one that is written; this is for those that nobody writes to any
more, and for the audit log. Chats, tokens and instances stay until somebody deletes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, select, text

from toolyard.store.tables import (
    approvals,
    attempts,
    audit,
    auth_pending,
    catalogues,
    grants,
    invites,
    letters,
    results,
    sessions,
    sign_ins,
)
from toolyard.store.working import Workshop

__all__ = ["Sweeping"]

_DAY = 86_400.0
_BATCH = 1_000
_PAUSE = 0.1
"""Seconds between two batches: whoever has work to do goes first."""
_LOCK = 0x746F6F6C79617265
"""Of PostgreSQL's advisory locks, the one for this."""


class Sweeping:
    """Deletes rows that are of no use to anybody."""

    def __init__(self, workshop: Workshop, clock: Callable[[], float]) -> None:
        self._workshop = workshop
        self._clock = clock

    async def sweep(self, audit_days: int) -> int:
        """Delete all that is due; how many entries of the audit log that were. Those of so many days stay, of
        0 all. Ends early where another process is at it. Raises StoreError."""
        await self._workshop.write(self._others)
        forgotten = 0
        while audit_days and (count := await self._workshop.write(lambda c: self._audit(c, audit_days))):
            forgotten += count
            await asyncio.sleep(_PAUSE)
        return forgotten

    def _others(self, connection: Connection) -> None:
        if not _alone(connection):
            return
        for table, due in _due(self._clock()):
            connection.execute(delete(table).where(due))

    def _audit(self, connection: Connection, days: int) -> int:
        """One batch, from the oldest on: their numbers grow with the time, and need no other index."""
        if not _alone(connection):
            return 0
        oldest = connection.execute(select(audit.c.id, audit.c.at).order_by(audit.c.id).limit(_BATCH)).all()
        before = self._clock() - days * _DAY
        due = [row.id for row in oldest if row.at < before]
        if due:
            within = audit.c.id.between(due[0], due[-1])
            connection.execute(delete(audit).where(within, audit.c.at < before))
        return len(due)


def _due(now: float) -> list[tuple[Table, ColumnElement[bool]]]:
    day, month, season = now - _DAY, now - 30 * _DAY, now - 90 * _DAY
    return [
        (sessions, sessions.c.expires_at < now),
        (invites, invites.c.expires_at < now),
        (attempts, attempts.c.at < day),
        (sign_ins, sign_ins.c.at < day),
        (auth_pending, auth_pending.c.began_at < day),
        (grants, grants.c.expires_at <= now),
        (approvals, approvals.c.chat_id.is_(None) & (approvals.c.asked_at < month)),
        (results, results.c.expires_at <= now),
        (letters, letters.c.sent_at < day),
        (catalogues, catalogues.c.fetched_at < season),
    ]


def _alone(connection: Connection) -> Any:
    """Whether no other replica is at it; until the end of the transaction."""
    if connection.dialect.name == "sqlite":
        return True
    return connection.execute(text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": _LOCK}).scalar()
