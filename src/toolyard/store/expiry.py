"""Clears away what has run its time, a little at a time, whichever process comes first.

Most tables end their old rows with the next one that is written; this is for those that nobody writes to any
more, and for the audit log. Chats, tokens and instances stay until somebody deletes them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, select, text

from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import (
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

__all__ = ["ExpiredRowCleanup"]

_log = logging.getLogger("toolyard.store")

_DAY_SECONDS = 86_400.0
_BATCH_ROWS = 1_000
_BATCH_PAUSE_SECONDS = 0.1
"""Seconds between two batches: whoever has work to do goes first."""
_EXPIRY_LOCK_ID = 0x746F6F6C79617265
"""Of PostgreSQL's advisory locks, the one for this."""


class ExpiredRowCleanup:
    """Deletes rows that are of no use to anybody."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._monotonic = monotonic
        self._clock_offset = clock() - monotonic()
        self._paused_until = 0.0

    async def delete_expired(self, audit_days: int) -> int:
        """Delete all that is due; how many entries of the audit log that were. Those of so many days stay, of
        0 all. Ends early where another process is at it. Raises StoreError.

        Deletes nothing for a day after the clock was set: a clock that is wrong by years would make
        everything due, and what was deleted does not come back when it is corrected.
        """
        if self._is_paused_after_clock_change():
            return 0
        await self._executor.write(self._delete_expired_rows)
        forgotten, after = 0, 0 if audit_days else None
        while after is not None:
            count, after = await self._executor.write(
                lambda connection, after=after: self._delete_audit_batch(connection, audit_days, after)
            )
            forgotten += count
            await asyncio.sleep(_BATCH_PAUSE_SECONDS if after is not None else 0)
        return forgotten

    def _is_paused_after_clock_change(self) -> bool:
        now = self._monotonic()
        offset = self._clock() - now
        if abs(offset - self._clock_offset) > _DAY_SECONDS:
            _log.warning("the clock was set by more than a day: nothing is deleted for a day")
            self._clock_offset, self._paused_until = offset, now + _DAY_SECONDS
        return now < self._paused_until

    def _delete_expired_rows(self, connection: Connection) -> None:
        if not _try_expiry_lock(connection):
            return
        for table, due in _expiry_conditions(self._clock()):
            connection.execute(delete(table).where(due))

    def _delete_audit_batch(self, connection: Connection, days: int, after: int) -> tuple[int, int | None]:
        """One batch, from the oldest on: their numbers grow with the time, and need no other index. How many
        were deleted, and after which number to go on.

        Entries of a clock that was ahead once stop nobody, and go with the next that is due."""
        if not _try_expiry_lock(connection):
            return 0, None
        query = (
            select(audit.c.id, audit.c.at).where(audit.c.id > after).order_by(audit.c.id).limit(_BATCH_ROWS)
        )
        oldest = connection.execute(query).all()
        before, ahead = self._clock() - days * _DAY_SECONDS, self._clock() + _DAY_SECONDS
        due = [row.id for row in oldest if row.at < before]
        if due:
            deleting = delete(audit).where(audit.c.id <= due[-1], ~audit.c.at.between(before, ahead))
            return connection.execute(deleting).rowcount, due[-1]
        passed = oldest and all(row.at > ahead for row in oldest)
        return 0, oldest[-1].id if passed else None


def _expiry_conditions(now: float) -> list[tuple[Table, ColumnElement[bool]]]:
    month, season, ahead = now - 30 * _DAY_SECONDS, now - 90 * _DAY_SECONDS, now + _DAY_SECONDS

    def outside_one_day(at: ColumnElement[float]) -> ColumnElement[bool]:
        # What is of tomorrow came from a clock that was wrong, and would stay for as long as it was.
        return ~at.between(now - _DAY_SECONDS, ahead)

    return [
        (sessions, (sessions.c.expires_at < now) | (sessions.c.created_at > ahead)),
        (invites, invites.c.expires_at < now),
        (attempts, outside_one_day(attempts.c.at)),
        (sign_ins, outside_one_day(sign_ins.c.at)),
        (auth_pending, outside_one_day(auth_pending.c.began_at)),
        (grants, (grants.c.expires_at <= now) | (grants.c.created_at > ahead)),
        (approvals, approvals.c.chat_id.is_(None) & (approvals.c.asked_at < month)),
        (results, results.c.expires_at <= now),
        (letters, outside_one_day(letters.c.sent_at)),
        (catalogues, ~catalogues.c.fetched_at.between(season, ahead)),
    ]


def _try_expiry_lock(connection: Connection) -> Any:
    """Whether no other replica is at it; until the end of the transaction."""
    if connection.dialect.name == "sqlite":
        return True
    return connection.execute(
        text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": _EXPIRY_LOCK_ID}
    ).scalar()
