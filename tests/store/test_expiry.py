"""What has run its time is cleared away, in both databases; everything else stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, func, select, text
from tests.store.conftest import KEY

from toolyard.auth.storage import PendingSignIn
from toolyard.store import Database, expiry
from toolyard.store.sql.tables import approvals, attempts, audit, auth_pending, sessions
from toolyard.types.account import BrowserSession, Role
from toolyard.types.approval import Approval
from toolyard.types.audit import AuditEntry

NOW, DAY = 1_800_000_000.0, 86_400.0
Open = Callable[..., Awaitable[Database]]


async def count(database: Database, table: Any) -> int:
    query = select(func.count()).select_from(table)
    return await database.executor.read(lambda connection: connection.execute(query).scalar_one())


async def write_entries(database: Database, *days: float) -> None:
    """Entries of so many days ago."""
    for age in days:
        database.audit.record(AuditEntry(at=NOW - age * DAY, action="a", actor="ann"))
    await database.audit.write(AuditEntry(at=NOW, action="last", actor="ann"))


@pytest.fixture
async def then(reopen: Open) -> Database:
    """The database, at a time that stands still."""
    return await reopen(clock=lambda: NOW)


async def test_old_entries_of_the_audit_log_go_in_batches(then: Database) -> None:
    cleanup = expiry.ExpiredRowCleanup(then.executor, lambda: NOW, batch_rows=3, pause_seconds=0.0)
    await write_entries(then, *[100.0] * 7, 90.5, 89.5, 1.0)
    assert await cleanup.delete_expired(90) == 8
    assert [(NOW - each.at) / DAY async for each in then.audit.export()] == [89.5, 1.0, 0.0]
    assert await cleanup.delete_expired(90) == 0


async def test_entries_of_a_clock_that_was_ahead_stop_nothing_and_go_with_the_next(then: Database) -> None:
    cleanup = expiry.ExpiredRowCleanup(then.executor, lambda: NOW, batch_rows=3, pause_seconds=0.0)
    await write_entries(then, 100.0, *[-3_000.0] * 8, 95.0, 93.0, -3_000.0, 80.0, -3_000.0)
    assert await cleanup.delete_expired(90) == 11
    remaining_times = [-3_000.0, 80.0, -3_000.0, 0.0]
    assert [(NOW - each.at) / DAY async for each in then.audit.export()] == remaining_times
    assert await cleanup.delete_expired(90) == 0


async def test_nothing_waits_for_a_time_that_a_wrong_clock_set(
    then: Database, pending: PendingSignIn
) -> None:
    await then.accounts.add_attempt("typed", NOW + 3_000 * DAY)
    await then.auth.put_pending(replace(pending, began_at=NOW + 3_000 * DAY))
    await then.expiry.delete_expired(90)
    assert [await count(then, table) for table in (attempts, auth_pending)] == [0, 0]


async def test_zero_days_keep_everything(then: Database) -> None:
    await write_entries(then, 10_000.0)
    assert await then.expiry.delete_expired(0) == 0
    assert await count(then, audit) == 2


async def test_expired_records_are_deleted_and_valid_ones_stay(
    then: Database, pending: PendingSignIn
) -> None:
    ann = await then.accounts.add_user("Ann", Role.USER)
    await then.accounts.add_session("1" * 64, BrowserSession("one", ann.id, NOW - DAY, NOW + DAY))
    await then.accounts.add_session("2" * 64, BrowserSession("two", ann.id, NOW - DAY, NOW - 1))
    await then.accounts.add_attempt("typed", NOW - 2 * DAY)
    await then.auth.put_pending(replace(pending, began_at=NOW - 2 * DAY))
    await then.approvals.add(approval("old", NOW - 31 * DAY))
    await then.expiry.delete_expired(90)
    tables = (sessions, attempts, auth_pending, approvals)
    assert [await count(then, table) for table in tables] == [1, 0, 0, 0]


async def test_two_replicas_do_not_sweep_at_once(postgres_url: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"url": postgres_url, "secret_key": KEY, "clock": lambda: NOW}
    then, other = [await Database.open(tmp_path, **options) for _ in range(2)]
    await write_entries(then, 100.0)
    may_continue, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": expiry.EXPIRY_LOCK_ID})
        loop.call_soon_threadsafe(may_continue.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(60)

    holding = asyncio.create_task(then.executor.write(hold))
    await may_continue.wait()
    assert await other.expiry.delete_expired(90) == 0
    go.set()
    await holding
    assert await other.expiry.delete_expired(90) == 1
    for each in (then, other):
        await each.close()


def approval(id: str, at: float) -> Approval:
    return Approval(id, "local", "s/put", "s_put", "hash", {}, "it writes", at)


async def test_nothing_is_deleted_for_a_day_after_the_clock_was_set(reopen: Open) -> None:
    now, seconds = NOW, 0.0
    database = await reopen(clock=lambda: now)
    sweeper = expiry.ExpiredRowCleanup(database.executor, lambda: now, monotonic=lambda: seconds)
    await write_entries(database, 1.0, 80.0)
    now, seconds = NOW + 366 * DAY, 60.0
    assert await sweeper.delete_expired(90) == 0
    seconds += DAY - 1
    now += DAY - 1
    assert await sweeper.delete_expired(90) == 0
    assert await count(database, audit) == 3
    seconds += 2
    assert await sweeper.delete_expired(90) == 3
