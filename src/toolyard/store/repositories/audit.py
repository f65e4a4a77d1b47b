"""Audit log with two ways to write an entry.

``record`` queues an entry and returns at once; entries are written in batches a fraction of a second later.
``write`` and ``require`` return when the entry is on disk, after all entries recorded before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence, Set
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, Select, TextClause, func, select, text, tuple_

from toolyard.store.errors import AuditUnavailable, StoreError
from toolyard.store.repositories.usage import MODEL_REQUEST_ACTION, TOOL_CALL_ACTION, add_usage
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.stored_values import MAX_INDEXED_CHARACTERS, clean_text
from toolyard.store.sql.tables import AUDIT_FAILURE_CONDITION, audit, instances
from toolyard.store.sql.write_batcher import WriteBatcher
from toolyard.types.audit import AuditEntry, server_of_tool

__all__ = ["RepeatedWarning", "SqlAuditLog"]

_MAX_BATCH_ENTRIES = 500
_BATCH_DELAY_SECONDS = 0.2
"""Delay in which entries are collected, so that one transaction writes many."""
_MAX_DETAILS_BYTES = 100_000
_MAX_PAGE_ENTRIES = 1_000
_MAX_ENTRY_ID = 2**63 - 1
_CLOSE_TIMEOUT_SECONDS = 10.0
"""Time that ``close`` allows for writing queued entries."""
_INSTANCE_ACTIONS = ("instance.",)
"""Actions whose target is the id of an instance."""
_SERVER_ACTIONS = ("tool.", "server.", "lock.", "config.", *_INSTANCE_ACTIONS)
"""Actions whose target is a server, an instance, or a tool of either."""
_FREQUENT_ACTIONS = (TOOL_CALL_ACTION, f"{TOOL_CALL_ACTION}.start", MODEL_REQUEST_ACTION)
_COLUMN_NAMES = ("at", "action", "actor", "actor_name", "target", "outcome", "address", "details", "server")

_log = logging.getLogger("toolyard.store.audit")


class SqlAuditLog:
    """Audit entries in a SQL table.

    ``record`` never blocks its caller. If the database is unavailable for so long that the queue is full, the
    oldest entries are dropped, and an entry with their number is written later.
    """

    def __init__(
        self, executor: DatabaseExecutor, *, max_pending: int = 20_000, retry_seconds: float = 1.0
    ) -> None:
        """``max_pending`` is the maximum number of queued entries. Writing is retried after
        ``retry_seconds`` while the database is unavailable."""
        self._executor = executor
        self._max_pending = max_pending
        self._retry_seconds = retry_seconds
        self._pending: deque[AuditEntry] = deque()
        self._lost_count = 0
        self._write_lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failure: str | None = None
        self._warning = RepeatedWarning(_log)
        self._flush_event = asyncio.Event()
        self._batcher: WriteBatcher[AuditEntry, None] = WriteBatcher(self._write_batch, lambda _: 1)

    @property
    def is_failing(self) -> bool:
        """Whether the last batch could not be written. Writing is retried every second."""
        return self._failure is not None

    def check(self) -> None:
        """Raise AuditUnavailable while entries cannot be written."""
        if self._failure is not None:
            raise AuditUnavailable(
                f"the call was not made, since the audit log cannot be written: {self._failure}",
                hint="free some disk space or check the database; calls work again after the next successful"
                " write",
            )

    async def write_before_action(self, entry: AuditEntry) -> None:
        """Write an entry before the action that it records. Raises AuditUnavailable."""
        try:
            await self.write(entry)
        except StoreError as error:
            raise AuditUnavailable(
                f"the call was not made, since the audit log cannot be written: {error.cause}",
                hint=error.hint,
            ) from error

    def record(self, entry: AuditEntry) -> None:
        """Queue an entry. Call it in the event loop."""
        if self._closed:
            _log.warning("the audit log is closed; entry not written: %s by %s", entry.action, entry.actor)
            return
        # Bound the memory that an unavailable database can cost, and keep the latest entries.
        if len(self._pending) >= self._max_pending:
            self._pending.popleft()
            self._lost_count += 1
        self._pending.append(entry)
        if self._task is None or self._task.done():
            self._task = self._start_writing()

    async def write(self, entry: AuditEntry) -> None:
        """Write an entry to disk, after all queued ones. Raises StoreError."""
        await self._batcher.put(entry)

    async def entries(
        self,
        *,
        before: int | None,
        limit: int,
        action: str | None,
        actor: str | None,
        since: float | None = None,
        server: str | None = None,
        succeeded: bool | None = None,
    ) -> Sequence[AuditEntry]:
        """Return up to ``limit`` entries, newest first, with ids lower than ``before``.

        ``server`` is the id of a configured or registry server: entries about it, its tools, and its
        instances and their tools. ``succeeded`` False selects entries that failed or were refused.
        """
        query = select(audit).order_by(audit.c.id.desc()).limit(max(0, min(limit, _MAX_PAGE_ENTRIES)))
        if before is not None and before <= _MAX_ENTRY_ID:
            query = query.where(audit.c.id < max(0, before))
        if succeeded is True:
            query = query.where(audit.c.outcome == "ok")
        query = query.where(
            *_build_conditions(action=action, actor=actor, server=server, only_failures=succeeded is False)
        )

        def read(connection: Connection) -> Sequence[Any]:
            if since is None:
                return connection.execute(query).all()
            first_id = connection.execute(_first_id_query(since)).scalar()
            if first_id is None:
                return ()
            recent = query.where(audit.c.id > first_id - _MAX_BATCH_ENTRIES, audit.c.at >= since)
            return connection.execute(recent).all()

        return [_entry_from_row(row) for row in await self._executor.read_or_default(read, ())]

    async def export(self) -> AsyncIterator[AuditEntry]:
        """Yield all entries that exist now, oldest first, reading them in batches."""
        # Later entries are left out: on a busy server the export would otherwise follow the log without end.
        newest = select(func.max(audit.c.id))
        last = await self._executor.fetch_value(newest) or 0
        after = 0
        while after < last:
            within = (audit.c.id > after) & (audit.c.id <= last)
            query = select(audit).where(within).order_by(audit.c.id).limit(_MAX_BATCH_ENTRIES)
            entries = await self._executor.fetch_all(query, _entry_from_row)
            for entry in entries:
                yield entry
            after = entries[-1].id if entries else last

    async def close(self) -> None:
        """Write queued entries. The number of those that cannot be written within some seconds is logged."""
        # First entries with a waiting caller, which also write the queue; then the rest of the queue.
        await self._batcher.close()
        self._closed = True
        self._flush_event.set()
        task = self._start_writing() if self._task is None or self._task.done() else self._task
        await asyncio.wait([task], timeout=_CLOSE_TIMEOUT_SECONDS)
        task.cancel()
        await asyncio.wait([task])
        if self._pending:
            _log.error("audit log entries not written: %d", len(self._pending))

    async def _write_batch(self, entries: Sequence[AuditEntry]) -> Sequence[None]:
        """Write the entries of concurrent ``write`` calls, after the queued ones, to preserve the order."""
        async with self._write_lock:
            # Only entries queued so far: under steady load the queue may never become empty.
            due = len(self._pending)
            while due > 0:
                due -= await self._write_pending_batch()
            await self._insert_entries(entries)
        return [None] * len(entries)

    def _start_writing(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._write_pending(), name="toolyard-audit")

    async def _write_pending(self) -> None:
        pause = _BATCH_DELAY_SECONDS
        while self._pending:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._flush_event.wait()
            try:
                async with self._write_lock:
                    await self._write_pending_batch()
                pause = _BATCH_DELAY_SECONDS
            except StoreError as error:
                self._failure = error.cause
                self._warning.warn(
                    f"the audit log cannot be written ({len(self._pending)} queued): {error.cause}"
                )
                pause = self._retry_seconds
                if self._closed:
                    # The flush event stays set after ``close``, so the pause above no longer waits.
                    await asyncio.sleep(_BATCH_DELAY_SECONDS)

    async def _write_pending_batch(self) -> int:
        """Write one batch of queued entries and return their number. On failure they return to the queue."""
        batch = [self._pending.popleft() for _ in range(min(_MAX_BATCH_ENTRIES, len(self._pending)))]
        lost, self._lost_count = self._lost_count, 0
        try:
            await self._insert_entries([*_build_lost_entry(lost), *batch])
        except BaseException:
            # Put the entries back in order, also on cancellation, which ``close`` uses when time is up.
            self._lost_count += lost
            self._pending.extendleft(reversed(batch))
            raise
        return len(batch)

    async def _insert_entries(self, entries: Sequence[AuditEntry]) -> None:
        if entries:
            await self._executor.write(lambda connection: _insert_rows(connection, entries))
            self._failure = None
            self._warning.clear("the audit log can be written again")


def _insert_rows(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    servers = _find_servers(connection, entries)
    # Plain SQL, because there is an entry for each call: SQLAlchemy would take twice as long for its handling
    # of each value, and would check texts that were made storable just before.
    placeholder = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    connection.exec_driver_sql(
        f"INSERT INTO {audit.name} ({', '.join(_COLUMN_NAMES)})"
        f" VALUES ({', '.join([placeholder] * len(_COLUMN_NAMES))})",
        [_build_row(entry, server) for entry, server in zip(entries, servers, strict=True)],
    )
    add_usage(connection, entries)


def _build_lost_entry(count: int) -> list[AuditEntry]:
    if not count:
        return []
    return [AuditEntry(time.time(), "audit.lost", "", outcome="lost", details={"count": count})]


def _build_row(entry: AuditEntry, server: str) -> tuple[object, ...]:
    """Return the values of ``_COLUMN_NAMES``."""
    return (
        entry.at,
        clean_text(entry.action, 100),
        clean_text(entry.actor, MAX_INDEXED_CHARACTERS),
        clean_text(entry.actor_name, 500),
        clean_text(entry.target, 2_000),
        clean_text(entry.outcome, 500),
        clean_text(entry.address, 200),
        _details_json(entry),
        server,
    )


def _details_json(entry: AuditEntry) -> str:
    try:
        body = orjson.dumps(entry.details, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        body = orjson.dumps({"not_kept": str(error)})
    if len(body) > _MAX_DETAILS_BYTES:
        body = orjson.dumps({"not_kept": f"{len(body):,} bytes of details are too many"})
    return body.decode()


def _find_servers(connection: Connection, entries: Sequence[AuditEntry]) -> list[str]:
    """Return the id of the server that each entry is about; empty for entries about something else."""
    names = [
        server_of_tool(entry.target) if entry.action.startswith(_SERVER_ACTIONS) else "" for entry in entries
    ]
    server_by_instance = _find_instances(connection, {name for name in names if name.startswith("@")})
    ids = {entry.target for entry in entries if entry.action.startswith(_INSTANCE_ACTIONS)}
    if ids:
        query = select(instances.c.id, instances.c.server_id).where(instances.c.id.in_(ids))
        server_by_instance |= {row.id: row.server_id for row in connection.execute(query)}
    return [clean_text(server_by_instance.get(name, name), MAX_INDEXED_CHARACTERS) for name in names]


def _find_instances(connection: Connection, names: Set[str]) -> dict[str, str]:
    """Return the servers of instances by name, such as ``@ann/github``."""
    keys = [tuple(name[1:].split("/", 1)) for name in names if "/" in name]
    if not keys:
        return {}
    query = select(instances.c.user_id, instances.c.slug, instances.c.server_id).where(
        tuple_(instances.c.user_id, instances.c.slug).in_(keys)
    )
    return {f"@{row.user_id}/{row.slug}": row.server_id for row in connection.execute(query)}


def _build_conditions(
    *, action: str | None, actor: str | None, server: str | None, only_failures: bool
) -> list[ColumnElement[bool] | TextClause]:
    """Return the conditions of a page, of which only the most selective one may use an index.

    Each index has the id as its last column, so that the newest matches are found at once. A planner does not
    know that most entries are calls, and may read all of them for a person who made none.
    """
    conditions: list[ColumnElement[bool] | TextClause] = []

    def add(column: ColumnElement[str], value: str | None) -> None:
        if value is not None:
            # An expression in place of the column cannot use its index.
            conditions.append((column.concat("") if conditions else column) == value)

    is_frequent = action in _FREQUENT_ACTIONS
    add(audit.c.action, None if is_frequent else action)
    if only_failures:
        is_failure = text(AUDIT_FAILURE_CONDITION)
        conditions.append(is_failure if not conditions else ~audit.c.outcome.in_(("ok", "")))
    add(audit.c.server, server)
    add(audit.c.actor, actor)
    add(audit.c.action, action if is_frequent else None)
    return conditions


def _first_id_query(since: float) -> Select[Any]:
    """Return the query for the lowest id among the first entries since a time.

    Ids grow with time, except among entries that were written in one batch or at once by several processes:
    so the id of the very first entry is not enough. With a bound of ids, an index by something else need not
    be read to its end.
    """
    first = select(audit.c.id).where(audit.c.at >= since).order_by(audit.c.at).limit(_MAX_BATCH_ENTRIES)
    return select(func.min(first.subquery().c.id))


def _entry_from_row(row: Any) -> AuditEntry:
    return AuditEntry(
        at=row.at,
        action=row.action,
        actor=row.actor,
        actor_name=row.actor_name,
        target=row.target,
        outcome=row.outcome,
        address=row.address,
        details=orjson.loads(row.details),
        id=row.id,
    )


_FIRST_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 60.0, 3600.0


class RepeatedWarning:
    """Warning about one condition. Call ``warn`` at every failure and ``clear`` at every success.

    An intermittent condition, such as a disk with room for small entries only, counts as lasting: the
    intervals start again only after a whole interval without a failure.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._interval = 0.0
        self._next_log_at = self._last_failure_at = -_MAX_INTERVAL_SECONDS
        self._suppressed_count = 0
        self._is_recovery_due = False

    def warn(self, message: str) -> None:
        """Log the message, or count it if the interval since the last one has not passed."""
        now = self._clock()
        quiet_seconds, self._last_failure_at = now - self._last_failure_at, now
        if now < self._next_log_at:
            self._suppressed_count += 1
            return
        if quiet_seconds > self._interval:
            self._interval, self._suppressed_count = 0.0, 0
        more = (
            f" ({self._suppressed_count:,} more failures since the last message)"
            if self._suppressed_count
            else ""
        )
        self._log.warning("%s%s", message, more)
        # Double the interval, so that an outage of hours adds few lines to the log.
        self._interval = min(max(self._interval * 2, _FIRST_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        self._next_log_at, self._suppressed_count = now + self._interval, 0
        self._is_recovery_due = True

    def clear(self, message: str) -> None:
        """Log a recovery, if a warning was logged since the last one."""
        if self._is_recovery_due:
            self._log.info("%s", message)
        self._is_recovery_due = False
