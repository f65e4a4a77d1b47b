"""Databases that fail: what is tried again, and what is said."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import text, update

from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.store import Database
from toolyard.store.errors import DatabaseUnavailable, StoreClosed
from toolyard.store.sql import dialects
from toolyard.store.sql.dialects import TimeLimits
from toolyard.store.sql.tables import users
from toolyard.types.account import Role, User

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEY = "a key for tests, long enough"


# PostgreSQL.


@pytest.fixture
async def replica(postgres_url: str, tmp_path: Path) -> Any:
    database = await Database.open(tmp_path, url=postgres_url, secret_key=KEY)
    yield database
    await database.close()


def end_all(postgres_url: str) -> int:
    """What a restart of PostgreSQL, or a firewall, does to connections that wait in the pool."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        backends = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(backends)


async def test_every_connection_is_bounded(replica: Database) -> None:
    for run in (replica.executor.read, replica.executor.write):
        for name, value in (("statement_timeout", "30s"), ("idle_in_transaction_session_timeout", "1min")):
            assert await run(lambda c, name=name: c.execute(text(f"SHOW {name}")).scalar()) == value


async def test_connections_that_ended_meanwhile_are_replaced(replica: Database, postgres_url: str) -> None:
    for number in range(3):
        await asyncio.gather(*(replica.accounts.list_users() for _ in range(20)))
        assert end_all(postgres_url) > 1
        await replica.accounts.add_user(f"written {number}", Role.USER)
        assert end_all(postgres_url) >= 1
        assert len(await replica.accounts.list_users()) == number + 1


async def test_transactions_that_block_each_other_are_tried_again(replica: Database) -> None:
    ann, bob = [await replica.accounts.add_user(name, Role.USER) for name in ("Ann", "Bob")]
    tries, barrier = count(1), threading.Barrier(2)

    def both(first: User, second: User) -> Any:
        def work(connection: Any) -> None:
            number = next(tries)
            connection.execute(update(users).where(users.c.id == first.id).values(last_seen=1.0))
            if number <= 2:
                barrier.wait(30)
            connection.execute(update(users).where(users.c.id == second.id).values(last_seen=2.0))

        return work

    await asyncio.gather(replica.executor.write(both(ann, bob)), replica.executor.write(both(bob, ann)))
    assert next(tries) > 3


async def test_a_database_that_goes_away_is_said_and_comes_back(
    replica: Database, postgres_url: str, postgres_server: str
) -> None:
    name = postgres_url.split("/")[3].split("?")[0]

    def allow(yes: bool) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {'true' if yes else 'false'}")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )

    allow(False)
    for work in (
        replica.ping,
        replica.accounts.list_users,
        lambda: replica.accounts.add_user("Ann", Role.USER),
    ):
        with pytest.raises(DatabaseUnavailable, match="cannot be used") as exc_info:
            await work()
        assert exc_info.value.hint
    with pytest.raises(DatabaseUnavailable, match="not currently accepting"):
        async with replica.auth.refresh_lock("k"):
            pass
    allow(True)
    await replica.ping()
    await replica.accounts.add_user("Ann", Role.USER)
    async with replica.auth.refresh_lock("k"):
        pass


async def test_a_lock_that_is_held_for_too_long_is_said(
    database: Database, reopen: Callable[..., Awaitable[Database]]
) -> None:
    other: Database = await reopen(limits=TimeLimits(lock=0.2))
    async with database.auth.refresh_lock("k"):
        with pytest.raises(
            DatabaseUnavailable, match=r"has held the lock .* for more than 0.2 s"
        ) as exc_info:
            async with other.auth.refresh_lock("k"):
                pass
        assert "hangs" in str(exc_info.value.hint)


async def test_closing_does_not_wait_for_a_database_that_hangs(postgres_url: str, tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=postgres_url, secret_key=KEY, limits=TimeLimits(close=0.2))
    start_events = [threading.Event() for _ in range(dialects.POSTGRESQL_POOL_SIZE)]

    def hang(connection: Any, begin: threading.Event) -> None:
        connection.execute(text("SELECT set_config('statement_timeout', '0', false)"))
        begin.set()
        connection.execute(text("SELECT pg_sleep(300)"))

    ways = (database.executor.read, database.executor.write) * (len(start_events) // 2)
    pairs = zip(ways, start_events, strict=True)
    work = [asyncio.ensure_future(way(partial(hang, begin=begin))) for way, begin in pairs]
    late = asyncio.ensure_future(database.ping())
    try:
        for begin in start_events:
            assert await asyncio.to_thread(begin.wait, 30)
        async with asyncio.timeout(60):
            await database.close()
        for one in await asyncio.gather(*work, return_exceptions=True):
            assert isinstance(one, DatabaseUnavailable)
        # Whoever came last did not even begin.
        with pytest.raises(StoreClosed):
            await late
    finally:
        end_all(postgres_url)


# SQLite.


async def test_a_database_that_is_locked_for_too_long_is_said(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY, limits=TimeLimits(busy=0.2))
    other = sqlite3.connect(tmp_path / "toolyard.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="locked") as exc_info:
        await database.accounts.add_user("Ann", Role.USER)
    assert "another process has locked the file" in str(exc_info.value.hint)
    # Who reads does not wait for who writes.
    assert await database.accounts.list_users() == []
    other.execute("COMMIT")
    other.close()
    await database.accounts.add_user("Ann", Role.USER)
    await database.close()


async def test_a_new_database_that_is_locked_for_too_long_is_said(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "toolyard.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="locked") as exc_info:
        await Database.open(tmp_path, url=None, secret_key=KEY, limits=TimeLimits(busy=0.2))
    assert "another process has locked the file" in str(exc_info.value.hint)
    other.close()
    await (await Database.open(tmp_path, url=None, secret_key=KEY)).close()


async def test_a_disk_that_is_full_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    await database.accounts.add_user("Ann", Role.USER)
    pages = await database.executor.write(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar())
    await database.executor.write(lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {pages}").scalar())
    from toolyard.types.registry import RegistryServer

    large = RegistryServer("S", "http://x", id="s", description="x" * 900_000)
    with pytest.raises(DatabaseUnavailable, match="full") as exc_info:
        await database.registry.add_server(large)
    assert "free some disk space" in str(exc_info.value.hint)
    assert [user.name for user in await database.accounts.list_users()] == ["Ann"]
    assert await database.registry.list_servers() == []
    await database.executor.write(lambda c: c.exec_driver_sql("PRAGMA max_page_count = 100000").scalar())
    await database.registry.add_server(large)
    await database.close()


@pytest.mark.parametrize("fault", ["removed", "replaced"])
async def test_a_file_that_is_removed_or_replaced_is_not_written_to_any_more(
    tmp_path: Path, fault: str
) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=None)
    file, backup = tmp_path / "toolyard.db", tmp_path / "kept.db"
    await database.ping()
    file.rename(backup)
    if fault == "replaced":
        file.write_bytes(backup.read_bytes())
    for use in (database.ping(), database.config_pins.save(PinKey("server"), PinEntry(pins=b"lost"))):
        with pytest.raises(DatabaseUnavailable, match="removed or replaced") as exc_info:
            await use
        assert "restart" in str(exc_info.value.hint)
    backup.replace(file)
    await database.ping()
    assert await database.config_pins.save(PinKey("server"), PinEntry(pins=b"stored"))
    await database.close()


async def test_readers_cannot_write(tmp_path: Path) -> None:
    """A change that is run as a read would skip the queue of the one writer."""
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    with pytest.raises(DatabaseUnavailable, match="readonly"):
        await database.executor.read(lambda c: c.execute(users.delete()))
    await database.close()
