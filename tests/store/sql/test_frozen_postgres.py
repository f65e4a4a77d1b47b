"""A PostgreSQL that is frozen: every call ends with DatabaseUnavailable, and works again after the thaw."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.postgres_proxy import FreezableProxy, run_freezable_proxy

from toolyard.store import Database, transfer
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL
from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.sql import migrate
from toolyard.store.sql.dialects import TimeLimits, create_postgresql_engines, parse_postgresql_url
from toolyard.types.account import Role

KEY = "a key for tests, long enough"
LIMITS = TimeLimits(answer=1.0, queue=30.0, heartbeat=0.5, lock=0.5)
HANG_GUARD = 60


@pytest.fixture
async def proxy_and_url(postgres_url: str) -> AsyncIterator[tuple[FreezableProxy, str]]:
    async with run_freezable_proxy(postgres_url) as freezable_proxy:
        yield freezable_proxy


@pytest.fixture
def proxy(proxy_and_url: tuple[FreezableProxy, str]) -> FreezableProxy:
    return proxy_and_url[0]


@pytest.fixture
def url(proxy_and_url: tuple[FreezableProxy, str]) -> str:
    return proxy_and_url[1] + "&connect_timeout=2"


@pytest.fixture
async def replica(proxy: FreezableProxy, url: str, tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path, url=url, secret_key=KEY, limits=LIMITS)
    yield database
    proxy.thaw()
    await database.close()


async def test_every_kind_of_statement_on_an_open_connection_ends(
    replica: Database, proxy: FreezableProxy
) -> None:
    await replica.accounts.add_user("Ann", Role.USER)
    proxy.freeze()
    for work in (
        replica.accounts.list_users,
        lambda: replica.accounts.add_user("Bob", Role.USER),
        replica.ping,
    ):
        async with asyncio.timeout(HANG_GUARD):
            with pytest.raises(DatabaseUnavailable):
                await work()
    proxy.thaw()
    async with asyncio.timeout(HANG_GUARD):
        assert [user.name for user in await replica.accounts.list_users()] == ["Ann"]


async def test_a_commit_that_is_not_answered_leaves_the_outcome_open(
    replica: Database, proxy: FreezableProxy
) -> None:
    proxy.freeze_on = b"COMMIT\0"
    async with asyncio.timeout(HANG_GUARD):
        with pytest.raises(DatabaseUnavailable, match="not known whether the last change was saved"):
            await replica.accounts.add_user("Ann", Role.USER)


async def test_a_crowd_of_calls_ends_after_one_time_limit(replica: Database, proxy: FreezableProxy) -> None:
    """Of those that queue for a connection none waits for a time limit of its own."""
    proxy.freeze()
    async with asyncio.timeout(HANG_GUARD):
        outcomes = await asyncio.gather(
            *(replica.accounts.list_users() for _ in range(500)), return_exceptions=True
        )
    assert {type(one) for one in outcomes} == {DatabaseUnavailable}
    refusals = [one for one in outcomes if "Toolyard is trying a new connection" in str(one)]
    assert len(refusals) > 400
    proxy.thaw()
    async with asyncio.timeout(HANG_GUARD):
        while True:
            try:
                assert await replica.accounts.list_users() == []
                break
            except DatabaseUnavailable:
                await asyncio.sleep(0.05)
    assert await asyncio.gather(*(replica.accounts.list_users() for _ in range(50))) == [[]] * 50


async def test_a_slow_statement_of_a_server_that_answers_is_ended_by_the_server(
    postgres_url: str, tmp_path: Path
) -> None:
    from sqlalchemy import text

    def sleep(connection: Any) -> None:
        assert connection.execute(text("SHOW statement_timeout")).scalar() == "30s"
        connection.execute(text("SET LOCAL statement_timeout = '100ms'"))
        connection.execute(text("SELECT pg_sleep(300)"))

    database = await Database.open(tmp_path, url=postgres_url, secret_key=KEY)
    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        await database.executor.read(sleep)
    # That is no frozen server: nobody else is refused.
    assert await asyncio.gather(*(database.accounts.list_users() for _ in range(20))) == [[]] * 20
    await database.close()


async def test_a_lock_between_replicas_is_not_waited_for(replica: Database, proxy: FreezableProxy) -> None:
    proxy.freeze_on = b"pg_advisory_lock"
    async with asyncio.timeout(HANG_GUARD):
        with pytest.raises(DatabaseUnavailable, match="did not answer"):
            async with replica.auth.refresh_lock("key"):
                pass


async def test_a_listener_for_other_replicas_notices_the_failure_and_recovers(
    replica: Database, proxy: FreezableProxy, postgres_url: str, tmp_path: Path
) -> None:
    async with aclosing(replica.signals.listen(REGISTRY_CHANNEL)) as signals:
        assert await anext(signals) == ""
        async with asyncio.timeout(HANG_GUARD):
            while not replica.signals.is_listening:
                await asyncio.sleep(0.05)
            proxy.freeze()
            while replica.signals.is_listening:
                await asyncio.sleep(0.05)
            proxy.thaw()
            while not replica.signals.is_listening:
                await asyncio.sleep(0.05)
            # Something may have been missed.
            assert await anext(signals) == ""
            other = await Database.open(tmp_path, url=postgres_url, secret_key=KEY)
            await other.signals.send(REGISTRY_CHANNEL, "changed")
            await other.close()
            assert await anext(signals) == "changed"


async def test_opening_ends_where_the_server_is_frozen_from_the_start(
    proxy: FreezableProxy, url: str, tmp_path: Path
) -> None:
    proxy.freeze()
    async with asyncio.timeout(HANG_GUARD):
        with pytest.raises(DatabaseUnavailable, match="timeout"):
            await Database.open(tmp_path, url=url, secret_key=KEY, limits=LIMITS)


@pytest.mark.parametrize(("answer", "seconds"), [(0.5, "1"), (3.2, "4"), (35.0, "10")])
def test_connecting_takes_no_longer_than_a_statement_may(answer: float, seconds: str) -> None:
    url = parse_postgresql_url("postgresql://user@host/database")
    engines = create_postgresql_engines(url, TimeLimits(answer=answer))
    assert engines.connect_args["connect_timeout"] == seconds


@pytest.mark.parametrize("moment", [b"set_config", b"pg_advisory_xact_lock", b"CREATE TABLE", b"COMMIT\0"])
async def test_opening_ends_where_the_server_freezes_meanwhile(
    proxy: FreezableProxy, url: str, tmp_path: Path, moment: bytes
) -> None:
    proxy.freeze_on = moment
    async with asyncio.timeout(HANG_GUARD):
        with pytest.raises(DatabaseUnavailable, match="did not answer within 1 s"):
            await Database.open(tmp_path, url=url, secret_key=KEY, limits=LIMITS)


async def test_a_migration_of_another_replica_is_waited_for_while_the_server_answers(
    postgres_url: str, tmp_path: Path
) -> None:
    limits = TimeLimits(answer=0.3, migration=30.0)
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
        await other.execute("SELECT pg_advisory_lock(%s)", (migrate.MIGRATION_LOCK_ID,))
        opening = asyncio.create_task(
            Database.open(tmp_path, url=postgres_url, secret_key=KEY, limits=limits)
        )
        await asyncio.wait([opening], timeout=1.5)
        assert not opening.done()
        await other.execute("SELECT pg_advisory_unlock(%s)", (migrate.MIGRATION_LOCK_ID,))
        await (await opening).close()


async def test_a_migration_of_another_replica_is_not_waited_for_without_end(
    postgres_url: str, tmp_path: Path
) -> None:
    limits = TimeLimits(answer=0.2, migration=0.5)
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
        await other.execute("SELECT pg_advisory_lock(%s)", (migrate.MIGRATION_LOCK_ID,))
        async with asyncio.timeout(HANG_GUARD):
            with pytest.raises(DatabaseUnavailable, match="did not answer"):
                await Database.open(tmp_path, url=postgres_url, secret_key=KEY, limits=limits)


async def test_moving_to_a_server_that_freezes_ends(proxy: FreezableProxy, url: str, tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    await database.accounts.add_user("Ann", Role.USER)
    await database.close()
    proxy.freeze_on = b"INSERT INTO users"
    async with asyncio.timeout(HANG_GUARD):
        with pytest.raises(DatabaseUnavailable):
            await asyncio.to_thread(transfer.copy_sqlite_to_postgresql, tmp_path, url, KEY, None, LIMITS)


# SQLite.


async def test_no_write_waits_in_the_queue_without_end_where_another_process_holds_the_file(
    tmp_path: Path,
) -> None:
    limits = TimeLimits(queue=0.2, busy=2.0)
    database = await Database.open(tmp_path, url=None, secret_key=KEY, limits=limits)
    other = sqlite3.connect(tmp_path / "toolyard.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes: list[Any] = await asyncio.gather(
        *(database.accounts.add_user(f"user {number}", Role.USER) for number in range(20)),
        return_exceptions=True,
    )
    assert {type(one) for one in outcomes} == {DatabaseUnavailable}
    assert len([one for one in outcomes if "became free within 0.2 s" in str(one)]) == 19
    other.execute("COMMIT")
    other.close()
    await database.accounts.add_user("Ann", Role.USER)
    assert [user.name for user in await database.accounts.list_users()] == ["Ann"]
    await database.close()


async def test_work_that_begins_in_time_is_not_ended_by_the_limit_of_the_queue(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY, limits=TimeLimits(queue=0.1))
    begun, end = threading.Event(), threading.Event()

    def work(_connection: Any) -> str:
        begun.set()
        end.wait(30)
        return "done"

    task = asyncio.ensure_future(database.executor.write(work))
    assert await asyncio.to_thread(begun.wait, 30)
    with pytest.raises(DatabaseUnavailable, match="became free within"):
        await database.executor.write(work)
    end.set()
    assert await task == "done"
    await database.close()
