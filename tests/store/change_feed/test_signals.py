"""Word of what changed, within a process and between processes, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from tests.tasks import cancel

from toolyard.store import Database
from toolyard.store.change_feed.signals import Signals
from toolyard.store.errors import StoreClosed, StoreError
from toolyard.types.account import Role

KEY = "a key for tests, long enough"
Open = Callable[..., Awaitable[Database]]


class ChannelListener:
    """Somebody who listens to a channel."""

    def __init__(self, database: Database, channel: str) -> None:
        self.heard: list[str] = []
        self._task = asyncio.create_task(self._listen(database.signals.listen(channel)))

    async def _listen(self, start_program: AsyncGenerator[str]) -> None:
        async for program in start_program:
            self.heard.append(program)

    @property
    def words(self) -> list[str]:
        return [payload for payload in self.heard if payload]

    async def end(self) -> None:
        await cancel(self._task)

    async def over(self) -> None:
        await asyncio.wait_for(self._task, 30)


@asynccontextmanager
async def open_listener(
    database: Database, wait_until: Any, channel: str = "c"
) -> AsyncIterator[ChannelListener]:
    """One who listens, and hears others too."""
    listener = ChannelListener(database, channel)
    try:
        await wait_until(lambda: bool(listener.heard) and database.signals.is_listening)
        yield listener
    finally:
        await listener.end()


def is_sqlite(database: Database) -> bool:
    return database.executor.engines.kind == "sqlite"


async def test_every_local_listener_gets_it_once(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    async with (
        open_listener(database, wait_until) as one,
        open_listener(database, wait_until) as two,
        open_listener(database, wait_until, "d") as three,
    ):
        for payload in ("a", "½ \ud800", "b c"):
            await database.signals.send("c", payload)
        await database.signals.send("d", "last")
        await wait_until(lambda: three.words == ["last"])
        assert one.words == two.words == ["a", "½ \ud800", "b c"]


async def test_others_hear_it(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    other = await reopen()
    async with open_listener(other, wait_until) as listener, open_listener(database, wait_until) as here:
        before = len(listener.heard)
        await database.signals.send("c", "a")
        await wait_until(lambda: len(listener.heard) > before)
        # SQLite does not say what changed.
        assert listener.words == ([] if is_sqlite(database) else ["a"])
        assert here.words == ["a"]


async def test_the_revision_of_a_channel_differs_after_each_change(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    other, signals = await reopen(), database.signals
    assert signals.revision("c") is None, "nothing is received before somebody listens"
    async with open_listener(database, wait_until, "d"):
        first = signals.revision("c")
        assert first is not None
        assert signals.revision("c") == first
        await signals.send("c", "a")
        second = signals.revision("c")
        assert second not in (None, first), "before the change returns"
        await other.signals.send("c", "b")
        await wait_until(lambda: signals.revision("c") != second)
    assert signals.revision("c") is None


async def test_long_or_invalid_payloads_mean_look_again(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    other = await reopen()
    async with open_listener(other, wait_until) as listener:
        for payload in ("x" * 9_000, "nul \0", "½" * 5_000):
            before = len(listener.heard)
            await database.signals.send("c", payload)
            await wait_until(lambda before=before: len(listener.heard) > before)
        assert listener.words == []


async def test_rolled_back_changes_are_not_published(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    async with open_listener(database, wait_until) as listener:

        def work(connection: Connection) -> None:
            database.signals.notify(connection, "c", "never")
            raise StoreError("it failed")

        with pytest.raises(StoreError, match="it failed"):
            await database.executor.write(work)
        await database.signals.send("c", "kept")
        await wait_until(lambda: listener.words == ["kept"])


async def test_messages_to_other_processes_are_not_delivered_locally(
    database: Database, reopen: Open, wait_until: Callable[..., Awaitable[None]]
) -> None:
    other = await reopen()
    async with open_listener(database, wait_until) as here, open_listener(other, wait_until) as listener:
        before = len(listener.heard)
        work: Any = lambda connection: database.signals.notify(connection, "c", "a", include_local=False)  # noqa: E731
        await database.executor.write(work)
        if not is_sqlite(database):
            await wait_until(lambda: len(listener.heard) > before)
        await database.signals.send("c", "b")
        await wait_until(lambda: here.words == ["b"])


async def test_a_slow_listener_is_told_to_look_again(database: Database) -> None:
    channels = Signals(database.executor, max_pending=3)
    listening = channels.listen("c")
    assert await anext(listening) == ""
    await channels.send("c", "same")
    await channels.send("c", "same")
    for number in range(20):
        await channels.send("c", str(number))
    assert await anext(listening) == ""
    await channels.send("c", "last")
    assert await anext(listening) == "last"
    await listening.aclose()
    await channels.close()


async def test_equal_texts_that_wait_are_one(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    async with open_listener(database, wait_until, "ready"):
        listening = database.signals.listen("c")
        assert await anext(listening) == ""
        for payload in ("a", "b", "a", "b"):
            await database.signals.send("c", payload)
        assert [await anext(listening), await anext(listening)] == ["a", "b"]
        await database.signals.send("c", "a")
        assert await anext(listening) == "a"
        await listening.aclose()


async def test_closing_ends_every_listening(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    listeners = [ChannelListener(database, "c") for _ in range(3)]
    await wait_until(lambda: all(listener.heard for listener in listeners))
    await database.close()
    for listener in listeners:
        await listener.over()
    assert [payload async for payload in database.signals.listen("c")] == []
    with pytest.raises(StoreClosed):
        await database.signals.send("c", "x")
    await database.close()


async def test_closing_at_any_moment_leaves_nothing(reopen: Open) -> None:
    for pause in (0.0, 0.001, 0.005, 0.02, 0.05):
        database = await reopen()
        listener = ChannelListener(database, "c")
        await asyncio.sleep(pause)
        await database.close()
        await listener.over()


async def test_a_commit_after_the_end_of_the_listeners_loop_is_harmless(database: Database) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    database.signals._loop = loop
    listening = database.signals.listen("c")
    await anext(listening)
    database.signals._loop = loop
    await database.signals.send("c", "a")
    await listening.aclose()
    await database.ping()


async def test_the_file_is_polled_only_with_listeners(
    database: Database, wait_until: Callable[..., Awaitable[None]]
) -> None:
    async with open_listener(database, wait_until):
        (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "toolyard-signals")
    if is_sqlite(database):
        await wait_until(task.done)
    async with open_listener(database, wait_until) as again:
        await database.signals.send("c", "a")
        await wait_until(lambda: again.words == ["a"])


async def test_own_writes_cause_no_new_look(
    tmp_path: Path, wait_until: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    looks, look = 0, database.executor.file_version

    async def count_looks() -> object:
        nonlocal looks
        row_count = await look()
        looks += 1
        return row_count

    monkeypatch.setattr(database.executor, "file_version", count_looks)
    async with open_listener(database, wait_until) as listener:
        # Once because it begins to listen, and once after the first look.
        await wait_until(lambda: listener.heard == ["", ""])
        for number in range(3):
            await database.accounts.add_user(f"user {number}", Role.USER)
            await wait_until(lambda number=number: looks > number + 2)
        assert listener.heard == ["", ""]
    await database.close()


# Hearing that is lost for a while.


@pytest.fixture
async def replicas(postgres_url: str, tmp_path: Path) -> AsyncIterator[tuple[Database, Database]]:
    databases = [await Database.open(tmp_path, url=postgres_url, secret_key=KEY) for _ in range(2)]
    yield databases[0], databases[1]
    for database in databases:
        await database.close()


async def test_after_a_lost_connection_all_listeners_look_again(
    replicas: tuple[Database, Database],
    wait_until: Callable[..., Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, other = replicas
    killing = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    )
    async with open_listener(other, wait_until) as listener:
        # One at the beginning, and one when others can be heard: what comes after these is of the loss.
        await wait_until(lambda: listener.heard == ["", ""])
        for _ in range(2):
            before = len(listener.heard)
            await here.executor.write(lambda connection: connection.execute(killing).all())
            await wait_until(lambda before=before: len(listener.heard) > before)
            assert listener.heard[-1] == ""
            await here.signals.send("c", "a")
            await wait_until(lambda: listener.heard[-1] == "a")
    assert "cannot receive notifications from other processes" in caplog.text


@pytest.mark.parametrize(
    "fault", [StoreError("the disk is gone"), ZeroDivisionError("a bug")], ids=["disk", "bug"]
)
async def test_a_file_that_cannot_be_looked_at_for_a_while_is_looked_at_again(
    tmp_path: Path,
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    failed = asyncio.Event()

    async def broken() -> object:
        failed.set()
        raise fault

    async with open_listener(database, wait_until) as listener:
        before = len(listener.heard)
        with monkeypatch.context() as patch:
            patch.setattr(database.executor, "file_version", broken)
            await asyncio.wait_for(failed.wait(), 30)
        await wait_until(lambda: len(listener.heard) > before)
        assert listener.heard[-1] == ""
    await database.close()
