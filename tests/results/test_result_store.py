"""Results on disk or in a database: each principal's own, for some time, within a size."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolyard.results.result_store import PrincipalResultStores, Retention, StoredResult, make_handle
from toolyard.results.sqlite_store import SqliteResultStore
from toolyard.store import Database
from toolyard.store.repositories.results import DatabaseResultStore
from toolyard.types.account import Principal
from toolyard.types.server import Trust

ANN, BOB = Principal("ann"), Principal("bob")


def text(number: int, length: int = 50_000) -> StoredResult:
    # Digits that zlib cannot shorten much.
    from hashlib import sha512

    words = "".join(sha512(f"{number} {at}".encode()).hexdigest() for at in range(length // 128 + 1))
    return StoredResult(words[:length], Trust.UNTRUSTED, "srv")


class ResultStorage:
    """Where results are kept: a file, or one of the databases. Each ``store`` is as of another process."""

    def __init__(self, file: Path, database: Database | None) -> None:
        self._file = file
        self._database = database
        self.now: float | None = None
        """What time it is; None: what the machine says."""

    def clock(self) -> float:
        return time.time() if self.now is None else self.now

    def store(self, **bounds: Any) -> PrincipalResultStores:
        if self._database is None:
            return SqliteResultStore(self._file, Retention(**bounds), self.clock)
        return DatabaseResultStore(self._database.executor, self.clock, Retention(**bounds))

    async def count(self) -> int:
        query = "SELECT count(*) FROM result"
        if self._database is not None:
            return await self._database.executor.read(lambda c: c.exec_driver_sql(f"{query}s").scalar_one())
        with closing(sqlite3.connect(self._file)) as db:
            return db.execute(query).fetchone()[0]


@pytest.fixture(params=["file", "sqlite", "postgresql"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ResultStorage]:
    if request.param == "file":
        yield ResultStorage(tmp_path / "r.db", None)
        return
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    database = await Database.open(tmp_path, url=url, secret_key="a key for tests, long enough")
    yield ResultStorage(tmp_path / "r.db", database)
    await database.close()


async def put(store: PrincipalResultStores, principal: Principal, stored_result: StoredResult) -> str:
    handle = make_handle(stored_result)
    await store.for_principal(principal).save(handle, stored_result)
    return handle


# What is true wherever they are kept.


async def test_a_text_outlives_the_process_and_comes_back_whole(place: ResultStorage) -> None:
    for text in ("½ \ud800 text\n" * 10_000, "nul \0", "x" * 5_000_000):
        stored_result = StoredResult(text, Trust.UNTRUSTED, "srv")
        handle = await put(place.store(), ANN, stored_result)
        assert await place.store().for_principal(ANN).read(handle) == stored_result


async def test_bytes_come_back_with_their_kind(place: ResultStorage) -> None:
    for data, mime in ((b"\xff\0\xff\xd8" * 10_000, "image/jpeg"), (b"", "a/b; c=d"), (b"plain", "")):
        stored_result = StoredResult(data, Trust.TRUSTED, "srv", mime)
        handle = await put(place.store(), ANN, stored_result)
        assert await place.store().for_principal(ANN).read(handle) == stored_result
        assert handle != make_handle(StoredResult(data.decode("latin-1"), Trust.TRUSTED, "srv"))


async def test_results_are_not_shared_between_users(place: ResultStorage) -> None:
    store = place.store()
    handle = await put(store, ANN, text(1))
    assert await store.for_principal(BOB).read(handle) is None
    assert await store.for_principal(ANN).has_any()
    assert not await store.for_principal(BOB).has_any()
    assert await store.for_principal(ANN).read("no\0such \ud800") is None


async def test_a_text_expires(place: ResultStorage) -> None:
    place.now = 1_000_000.0
    store = place.store(max_age_seconds=60)
    handle = await put(store, ANN, text(1))
    place.now += 30
    # Put in once more, it is kept from then on.
    await put(store, ANN, text(1))
    place.now += 59
    assert await store.for_principal(ANN).read(handle) is not None
    place.now += 2
    assert await store.for_principal(ANN).read(handle) is None
    assert not await store.for_principal(ANN).has_any()
    await put(store, ANN, text(2))
    assert await place.count() == 1


async def test_the_oldest_make_room_and_the_newest_stays(place: ResultStorage) -> None:
    store = place.store(max_total_bytes=80_000, max_principal_bytes=60_000)
    handles = [await put(store, ANN, text(number)) for number in range(4)]
    presence = [await store.for_principal(ANN).read(handle) is not None for handle in handles]
    assert presence == [False, False, True, True]
    bobs = await put(store, BOB, text(9))
    assert [await store.for_principal(ANN).read(handle) is not None for handle in handles] == [
        False,
        False,
        False,
        True,
    ]
    assert await store.for_principal(BOB).read(bobs) is not None
    huge = await put(store, BOB, text(10, 400_000))
    assert await store.for_principal(BOB).read(huge) is not None
    assert await place.count() == 1


async def test_many_at_once(place: ResultStorage) -> None:
    stores = [place.store() for _ in range(3)]
    handles = await asyncio.gather(*(put(stores[number % 3], ANN, text(number)) for number in range(12)))
    assert all([await stores[0].for_principal(ANN).read(handle) is not None for handle in handles])


# The file.


@pytest.mark.parametrize("exists", [False, True], ids=["new", "readable by others before"])
async def test_the_file_is_its_owners_alone(tmp_path: Path, exists: bool) -> None:
    file = tmp_path / "r.db"
    if exists:
        file.touch()
        file.chmod(0o644)
    await put(SqliteResultStore(file), ANN, text(1))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    store = SqliteResultStore(
        tmp_path / "r.db", Retention(max_total_bytes=200_000, max_principal_bytes=200_000)
    )
    for number in range(40):
        await put(store, ANN, text(number))
    assert (tmp_path / "r.db").stat().st_size < 600_000


async def test_a_broken_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"no database at all " * 200)
    store = SqliteResultStore(tmp_path / "r.db")
    handle = await put(store, ANN, text(1))
    assert await SqliteResultStore(tmp_path / "r.db").for_principal(ANN).read(handle) == text(1)


async def test_a_corrupt_file_leaves_no_results_behind(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"confidential " * 200)
    await put(SqliteResultStore(tmp_path / "r.db"), ANN, text(1))
    assert [file.name for file in tmp_path.iterdir()] == ["r.db"]


async def test_an_invalid_row_is_ignored(tmp_path: Path) -> None:
    store = SqliteResultStore(tmp_path / "r.db")
    handle = await put(store, ANN, text(1))
    with sqlite3.connect(tmp_path / "r.db") as db:
        db.execute("UPDATE result SET body = x'00ff'")
    db.close()
    assert await SqliteResultStore(tmp_path / "r.db").for_principal(ANN).read(handle) is None


async def test_without_a_disk_results_are_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = SqliteResultStore(tmp_path / "file" / "r.db")
    handle = await put(store, ANN, text(1))
    assert await store.for_principal(ANN).read(handle) == text(1)
    assert await store.for_principal(BOB).read(handle) is None
