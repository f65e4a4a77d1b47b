"""Deletion of expired rows, in small batches, by one process at a time.

Most repositories delete old rows when they write a new one. This covers tables that are no longer written to,
and the audit log. Chats, tokens and instances stay until a user deletes them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select, text

from toolyard.store.sql import tables
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.types.audit import UsageGroup

__all__ = ["EXPIRY_LOCK_ID", "ExpiredRowCleanup"]

_log = logging.getLogger("toolyard.store")

_DAY_SECONDS = 86_400.0
EXPIRY_LOCK_ID = 0x746F6F6C79617265
"""Id of the PostgreSQL advisory lock held by the process that deletes."""


class ExpiredRowCleanup(Repository):
    """Deletes rows whose time has passed."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        clock: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        batch_rows: int = 1_000,
        pause_seconds: float = 0.1,
    ) -> None:
        """Other transactions can run in the pause of ``pause_seconds`` between two batches."""
        super().__init__(executor)
        self._clock = clock
        self._monotonic = monotonic
        self._batch_rows = batch_rows
        self._pause_seconds = pause_seconds
        self._clock_offset = clock() - monotonic()
        self._paused_until = 0.0

    async def delete_expired(self, audit_days: int, usage_days: int = 0) -> int:
        """Delete expired rows, and audit entries and usage sums older than so many days; 0 keeps all of
        those.

        Return the number of deleted audit entries. Ends early if another process is deleting. Raises
        StoreError.

        Deletes nothing for a day after the clock was set by more than a day: a clock that is wrong by years
        would make every row expire, and correcting it would not bring them back.
        """
        if self._is_paused_after_clock_change():
            return 0
        await self._delete_expired_rows()
        is_expired = usage_days > 0
        while is_expired:
            is_expired = await self._delete_usage_day(usage_days)
            await asyncio.sleep(self._pause_seconds if is_expired else 0)
        deleted, after = 0, 0 if audit_days else None
        while after is not None:
            count, after = await self._delete_audit_batch(audit_days, after)
            deleted += count
            await asyncio.sleep(self._pause_seconds if after is not None else 0)
        return deleted

    def _is_paused_after_clock_change(self) -> bool:
        now = self._monotonic()
        offset = self._clock() - now
        if abs(offset - self._clock_offset) > _DAY_SECONDS:
            _log.warning("the clock was changed by more than a day; expired rows are kept for another day")
            self._clock_offset, self._paused_until = offset, now + _DAY_SECONDS
        return now < self._paused_until

    @transaction
    def _delete_expired_rows(self, connection: Connection) -> None:
        # Tried and not awaited: if another replica deletes, nothing is left to do here. The lock ends with
        # the transaction, so each batch takes it again.
        if not _try_expiry_lock(connection):
            return
        for table, due in _expiry_conditions(self._clock()):
            connection.execute(delete(table).where(due))

    @transaction
    def _delete_usage_day(self, connection: Connection, days: int) -> bool:
        """Delete the sums of the oldest day if it has expired, and return whether it had.

        The total of a month is deleted with the first of its days, once all of them have expired.
        """
        if not _try_expiry_lock(connection):
            return False
        first_kept = datetime.fromtimestamp(self._clock() - days * _DAY_SECONDS, UTC).date().isoformat()
        oldest = connection.execute(select(func.min(tables.usage.c.day))).scalar()
        if oldest is None or oldest >= first_kept:
            return False
        connection.execute(delete(tables.usage).where(tables.usage.c.day == oldest))
        period = tables.usage_totals.c.period
        is_expired = (period <= oldest) & (period != first_kept[:7])
        connection.execute(
            delete(tables.usage_totals).where(tables.usage_totals.c.category.in_(UsageGroup), is_expired)
        )
        return True

    @transaction
    def _delete_audit_batch(self, connection: Connection, days: int, after: int) -> tuple[int, int | None]:
        """Delete one batch of the oldest entries after an id.

        Return the number of deleted entries and the id to continue after, or None at the end. Ids grow with
        time, so walking the primary key needs no index on ``at``. Entries from a clock that was ahead do not
        end the walk, and are deleted together with the next expired entry.
        """
        if not _try_expiry_lock(connection):
            return 0, None
        query = (
            select(tables.audit.c.id, tables.audit.c.at)
            .where(tables.audit.c.id > after)
            .order_by(tables.audit.c.id)
            .limit(self._batch_rows)
        )
        oldest = connection.execute(query).all()
        before, ahead = self._clock() - days * _DAY_SECONDS, self._clock() + _DAY_SECONDS
        due = [row.id for row in oldest if row.at < before]
        if due:
            statement = delete(tables.audit).where(
                tables.audit.c.id <= due[-1], ~tables.audit.c.at.between(before, ahead)
            )
            return connection.execute(statement).rowcount, due[-1]
        all_ahead = oldest and all(row.at > ahead for row in oldest)
        return 0, oldest[-1].id if all_ahead else None


def _expiry_conditions(now: float) -> list[tuple[Table, ColumnElement[bool]]]:
    month_ago, season_ago, ahead = now - 30 * _DAY_SECONDS, now - 90 * _DAY_SECONDS, now + _DAY_SECONDS

    def outside_one_day(at: ColumnElement[float]) -> ColumnElement[bool]:
        # Rows dated after tomorrow are from a clock that was ahead, and would stay until that time comes.
        return ~at.between(now - _DAY_SECONDS, ahead)

    return [
        (tables.sessions, (tables.sessions.c.expires_at < now) | (tables.sessions.c.created_at > ahead)),
        (tables.invites, tables.invites.c.expires_at < now),
        (tables.attempts, outside_one_day(tables.attempts.c.at)),
        (tables.sign_ins, outside_one_day(tables.sign_ins.c.at)),
        (tables.auth_pending, outside_one_day(tables.auth_pending.c.began_at)),
        (tables.grants, (tables.grants.c.expires_at <= now) | (tables.grants.c.created_at > ahead)),
        (tables.approvals, tables.approvals.c.chat_id.is_(None) & (tables.approvals.c.asked_at < month_ago)),
        (
            tables.attachments,
            (tables.attachments.c.expires_at <= now)
            | (tables.attachments.c.expires_at > ahead + _DAY_SECONDS),
        ),
        (tables.results, tables.results.c.expires_at <= now),
        (tables.questions, outside_one_day(tables.questions.c.asked_at)),
        (tables.letters, outside_one_day(tables.letters.c.sent_at)),
        (tables.catalogues, ~tables.catalogues.c.fetched_at.between(season_ago, ahead)),
    ]


def _try_expiry_lock(connection: Connection) -> Any:
    """Return whether this transaction is the only one that deletes. With SQLite it always is."""
    if connection.dialect.name == "sqlite":
        return True
    return connection.execute(
        text("SELECT pg_try_advisory_xact_lock(:lock)"), {"lock": EXPIRY_LOCK_ID}
    ).scalar()
