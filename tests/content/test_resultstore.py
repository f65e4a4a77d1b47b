"""Results on disk: each principal's own, for some time, within a size."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest

from toolyard.content import resultstore
from toolyard.content.handles import Kept, handle_of
from toolyard.content.resultstore import ResultStore
from toolyard.model.principal import Principal
from toolyard.model.server import Trust

ANN, BOB = Principal("ann"), Principal("bob")


def text(number: int, length: int = 50_000) -> Kept:
    # Digits that zlib cannot shorten much.
    from hashlib import sha512

    words = "".join(sha512(f"{number} {at}".encode()).hexdigest() for at in range(length // 128 + 1))
    return Kept(words[:length], Trust.UNTRUSTED, "srv")


async def put(store: ResultStore, who: Principal, kept: Kept) -> str:
    handle = handle_of(kept)
    await store.of(who).keep(handle, kept)
    return handle


async def test_a_text_outlives_the_process_and_comes_back_whole(tmp_path: Path) -> None:
    kept = Kept("½ \ud800 text\n" * 10_000, Trust.UNTRUSTED, "srv")
    handle = await put(ResultStore(tmp_path / "r.db"), ANN, kept)
    assert await ResultStore(tmp_path / "r.db").of(ANN).read(handle) == kept
    assert stat.S_IMODE((tmp_path / "r.db").stat().st_mode) == 0o600


async def test_what_is_anns_is_not_bobs(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "r.db")
    handle = await put(store, ANN, text(1))
    assert await store.of(BOB).read(handle) is None
    assert await store.has_any("ann")
    assert not await store.has_any("bob")


async def test_a_text_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(resultstore.time, "time", lambda: now)
    store = ResultStore(tmp_path / "r.db", seconds=60)
    handle = await put(store, ANN, text(1))
    now += 59
    assert await store.of(ANN).read(handle) is not None
    now += 2
    assert await store.of(ANN).read(handle) is None
    await put(store, ANN, text(2))
    with sqlite3.connect(tmp_path / "r.db") as db:
        assert db.execute("SELECT count(*) FROM result").fetchone() == (1,)
    db.close()


async def test_the_oldest_make_room_and_the_newest_stays(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "r.db", most=80_000, share=60_000)
    handles = [await put(store, ANN, text(number)) for number in range(4)]
    kept = [await store.of(ANN).read(handle) is not None for handle in handles]
    assert kept == [False, False, True, True]
    bobs = await put(store, BOB, text(9))
    assert [await store.of(ANN).read(handle) is not None for handle in handles] == [False, False, False, True]
    assert await store.of(BOB).read(bobs) is not None
    huge = await put(store, BOB, text(10, 400_000))
    assert await store.of(BOB).read(huge) is not None


async def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "r.db", most=200_000, share=200_000)
    for number in range(40):
        await put(store, ANN, text(number))
    assert (tmp_path / "r.db").stat().st_size < 600_000


async def test_many_at_once(tmp_path: Path) -> None:
    stores = [ResultStore(tmp_path / "r.db") for _ in range(3)]
    handles = await asyncio.gather(*(put(stores[number % 3], ANN, text(number)) for number in range(12)))
    assert all([await stores[0].of(ANN).read(handle) is not None for handle in handles])


async def test_a_broken_file_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"no database at all " * 200)
    store = ResultStore(tmp_path / "r.db")
    handle = await put(store, ANN, text(1))
    assert await ResultStore(tmp_path / "r.db").of(ANN).read(handle) == text(1)


async def test_where_there_is_no_disk_memory_serves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ResultStore(tmp_path / "file" / "r.db")
    handle = await put(store, ANN, text(1))
    assert await store.of(ANN).read(handle) == text(1)
    assert await store.of(BOB).read(handle) is None
