"""The audit log: noted at once, written soon, in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
from sqlalchemy import func, select

from toolyard.store.errors import AuditUnavailable, StoreError
from toolyard.store.sql.columns import clean_text
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.repeated_warning import RepeatedWarning
from toolyard.store.sql.tables import audit
from toolyard.store.sql.write_batcher import Gathering
from toolyard.types.audit import AuditEntry

__all__ = ["SqlAudit"]

_WAITING = 20_000
"""Entries that wait to be written, at most."""
_BATCH = 500
_SOON = 0.2
"""Seconds in which entries gather, so that one write to the disk serves many."""
_PAUSE = 1.0
"""Seconds between tries while the database is away."""
_DETAILS = 100_000
_PAGE = 1_000
_LAST_ID = 2**63 - 1
_LAST = 10.0
"""Seconds that closing gives to entries which are still waiting."""

_log = logging.getLogger("toolyard.store.audit")


class SqlAudit:
    """An Audit. When the database is away for too long the oldest entries are lost, and their number is
    recorded; nobody waits for it."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._waiting: deque[AuditEntry] = deque()
        self._lost = 0
        self._one_writes = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failure: str | None = None
        self._warning = RepeatedWarning(_log)
        self._hurry = asyncio.Event()
        self._changes: Gathering[AuditEntry, None] = Gathering(self._write_changes, lambda _: 1)

    @property
    def failing(self) -> bool:
        """Whether the last batch could not be written. It is tried again every second."""
        return self._failure is not None

    def check(self) -> None:
        """Raise AuditUnavailable while entries cannot be written."""
        if self._failure is not None:
            raise AuditUnavailable(
                f"the call was not made, since the audit log cannot be written: {self._failure}",
                hint="calls are made again as soon as a write works: make room on the disk, or look at the"
                " database",
            )

    async def require(self, entry: AuditEntry) -> None:
        """Write an entry before what it is about is done. Raises AuditUnavailable."""
        try:
            await self.write(entry)
        except StoreError as error:
            raise AuditUnavailable(
                f"the call was not made, since the audit log cannot be written: {error.cause}",
                hint=error.hint,
            ) from error

    def note(self, entry: AuditEntry) -> None:
        """See Audit. Call it from the event loop."""
        if self._closed:
            _log.warning("not in the audit log, which is closed: %s by %s", entry.action, entry.actor)
            return
        if len(self._waiting) >= _WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_soon(), name="toolyard-audit")

    async def write(self, entry: AuditEntry) -> None:
        """Write it, after all that was noted before; it is on the disk afterwards. Raises StoreError."""
        await self._changes.put(entry)

    async def entries(
        self, *, before: int | None, limit: int, action: str | None, actor: str | None
    ) -> Sequence[AuditEntry]:
        """The newest first, at most ``limit`` of them; ``before`` is the id of the last one seen."""
        query = select(audit).order_by(audit.c.id.desc()).limit(max(0, min(limit, _PAGE)))
        if before is not None and before <= _LAST_ID:
            query = query.where(audit.c.id < max(0, before))
        if action is not None:
            query = query.where(audit.c.action == action)
        if actor is not None:
            query = query.where(audit.c.actor == actor)
        rows = await self._workshop.find(lambda connection: connection.execute(query).all(), ())
        return [_entry(row) for row in rows]

    async def export(self) -> AsyncIterator[AuditEntry]:
        """All that is there now, the oldest first, a part at a time."""
        newest = select(func.max(audit.c.id))
        last = await self._workshop.read(lambda connection: connection.execute(newest).scalar()) or 0
        after = 0
        while after < last:
            within = (audit.c.id > after) & (audit.c.id <= last)
            query = select(audit).where(within).order_by(audit.c.id).limit(_BATCH)
            rows = await self._workshop.read(lambda connection, query=query: connection.execute(query).all())
            for row in rows:
                yield _entry(row)
            after = rows[-1].id if rows else last

    async def close(self) -> None:
        """Write what was noted; what cannot be written in some seconds is counted in the log."""
        await self._changes.close()
        self._closed = True
        self._hurry.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_soon(), name="toolyard-audit")
        await asyncio.wait([self._task], timeout=_LAST)
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._waiting:
            _log.error("%d entries of the audit log could not be written", len(self._waiting))

    async def _write_changes(self, entries: Sequence[AuditEntry]) -> Sequence[None]:
        """Those of everybody who waits at this moment, in one transaction."""
        async with self._one_writes:
            due = len(self._waiting)
            while due > 0:
                due -= await self._write_some()
            await self._insert(entries)
        return [None] * len(entries)

    async def _write_soon(self) -> None:
        pause = _SOON
        while self._waiting:
            await self._rest(pause)
            try:
                async with self._one_writes:
                    await self._write_some()
                pause = _SOON
            except StoreError as error:
                self._failure = error.cause
                self._warning.warn(f"the audit log waits with {len(self._waiting)} entries: {error.cause}")
                pause = _PAUSE
                if self._closed:
                    await asyncio.sleep(_SOON)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), seconds)

    async def _write_some(self) -> int:
        """How many of those that wait were written."""
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        lost, self._lost = self._lost, 0
        try:
            await self._insert([*_loss(lost), *batch])
        except BaseException:
            self._lost += lost
            self._waiting.extendleft(reversed(batch))
            raise
        return len(batch)

    async def _insert(self, entries: Sequence[AuditEntry]) -> None:
        rows = [_row(entry) for entry in entries]
        if rows:
            await self._workshop.write(lambda connection: connection.execute(audit.insert(), rows))
            self._failure = None
            self._warning.clear("the audit log can be written again")


def _loss(count: int) -> list[AuditEntry]:
    if not count:
        return []
    return [AuditEntry(time.time(), "audit.lost", "", outcome="lost", details={"count": count})]


def _row(entry: AuditEntry) -> dict[str, Any]:
    return {
        "at": entry.at,
        "action": clean_text(entry.action, 100),
        "actor": clean_text(entry.actor, 500),
        "actor_name": clean_text(entry.actor_name, 500),
        "target": clean_text(entry.target, 2_000),
        "outcome": clean_text(entry.outcome, 500),
        "address": clean_text(entry.address, 200),
        "details": _details(entry),
    }


def _details(entry: AuditEntry) -> str:
    try:
        body = orjson.dumps(entry.details, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        body = orjson.dumps({"not_kept": str(error)})
    if len(body) > _DETAILS:
        body = orjson.dumps({"not_kept": f"{len(body):,} bytes of details are too many"})
    return body.decode()


def _entry(row: Any) -> AuditEntry:
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
