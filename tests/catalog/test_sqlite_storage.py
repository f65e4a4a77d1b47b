"""The SQLite file: permissions, concurrent users, and recovery when it is damaged."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tasks import cancel

from toolyard.catalog.listing_storage import ListingKey, StoredListing
from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, SqliteListingStorage, SqlitePinEntryStorage

KEY = ListingKey("repo", "entry", "public")
STORED_LISTING = StoredListing(KEY, "hash", 1_800_000_000.0, 60.0, b"body")

WRITER = """
import asyncio, sys
from pathlib import Path
from toolyard.catalog.sqlite_storage import SqliteListingStorage
from toolyard.catalog.listing_storage import ListingKey, StoredListing

async def main(path, name, rounds):
    storage = SqliteListingStorage(Path(path))
    sys.stdin.readline()
    for number in range(int(rounds)):
        shared = ListingKey("shared", "entry", "public")
        body = f"{name}{number}".encode() * 2000
        await storage.save(StoredListing(shared, f"{name}{number}", 1000.0 + number, 60.0, body))
        own = ListingKey(name, str(number), "public")
        await storage.save(StoredListing(own, "hash", 1000.0, 60.0, name.encode()))
    await storage.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / CATALOGUE_FILE_NAME


@pytest.fixture
async def storage(path: Path) -> AsyncIterator[SqliteListingStorage]:
    storage = SqliteListingStorage(path)
    yield storage
    await storage.close()


async def load_listing(path: Path, key: ListingKey = KEY) -> StoredListing | None:
    storage = SqliteListingStorage(path)
    try:
        return await storage.load([key])
    finally:
        await storage.close()


async def test_entries_outlive_their_writer(path: Path, storage: SqliteListingStorage) -> None:
    await storage.save(STORED_LISTING)
    assert await load_listing(path) == STORED_LISTING


async def test_only_its_owner_can_read_it_and_its_side_files(
    path: Path, storage: SqliteListingStorage
) -> None:
    await storage.save(STORED_LISTING)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes[CATALOGUE_FILE_NAME] == 0o600
    assert f"{CATALOGUE_FILE_NAME}-wal" in modes
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_new_file_is_never_readable_by_others_not_even_for_a_moment(
    path: Path, storage: SqliteListingStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: object) -> None:
        raise OSError("the mode was mended afterwards")

    monkeypatch.setattr(os, "fchmod", too_late)
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY]) == STORED_LISTING


async def test_a_file_that_others_can_read_is_closed_to_them(
    path: Path, storage: SqliteListingStorage
) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    path.chmod(0o644)
    await storage.save(STORED_LISTING)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_making_it_touches_no_file(path: Path) -> None:
    SqliteListingStorage(path)
    assert not path.parent.exists()


async def test_a_closed_storage_does_not_open_its_file_again(
    path: Path, storage: SqliteListingStorage
) -> None:
    await storage.save(STORED_LISTING)
    await storage.close()
    assert await storage.load([KEY]) is None
    await storage.save(replace(STORED_LISTING, fetched_at=STORED_LISTING.fetched_at + 1))
    assert await load_listing(path) == STORED_LISTING


async def test_unchanged_contents_are_not_written_again(path: Path, storage: SqliteListingStorage) -> None:
    large = replace(STORED_LISTING, body=b"x" * 1_000_000)
    await storage.save(large)
    await storage.close()
    size = path.stat().st_size
    successor = SqliteListingStorage(path)
    await successor.save(replace(large, fetched_at=STORED_LISTING.fetched_at + 1))
    assert path.with_name(f"{CATALOGUE_FILE_NAME}-wal").stat().st_size < size / 10
    await successor.close()


async def test_an_entry_of_a_clock_that_was_ahead_makes_room(storage: SqliteListingStorage) -> None:
    await storage.save(replace(STORED_LISTING, fetched_at=STORED_LISTING.fetched_at + 3_000 * 86_400))
    await storage.save(STORED_LISTING)
    assert await storage.load([STORED_LISTING.key]) == STORED_LISTING


async def test_entries_not_fetched_for_a_season_are_dropped(storage: SqliteListingStorage) -> None:
    old = ListingKey("gone", "entry", "public")
    await storage.save(replace(STORED_LISTING, key=old, fetched_at=STORED_LISTING.fetched_at - 91 * 86_400))
    await storage.save(STORED_LISTING)
    assert await storage.load([old]) is None
    assert await storage.load([KEY]) == STORED_LISTING


@pytest.mark.parametrize(
    "garbage", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4096], ids=["text", "header"]
)
async def test_a_corrupt_file_is_set_aside_and_a_new_one_begun(
    path: Path, storage: SqliteListingStorage, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    path.parent.mkdir()
    path.write_bytes(garbage)
    with caplog.at_level(logging.WARNING):
        assert await storage.load([KEY]) is None
    await storage.save(STORED_LISTING)
    assert await load_listing(path) == STORED_LISTING
    assert path.with_name(f"{CATALOGUE_FILE_NAME}.broken").read_bytes() == garbage
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "corrupt" in caplog.text
    assert str(path) in caplog.text


async def test_the_log_of_a_corrupt_file_goes_with_it(path: Path, storage: SqliteListingStorage) -> None:
    await storage.save(STORED_LISTING)
    reader = sqlite3.connect(path)  # During a read, SQLite leaves the log in place.
    reader.execute("SELECT * FROM catalogue").fetchall()
    assert path.with_name(f"{CATALOGUE_FILE_NAME}-wal").exists()
    storage._replace_corrupt_file(sqlite3.DatabaseError("malformed"))  # pyright: ignore[reportPrivateUsage]
    assert sorted(file.name for file in path.parent.iterdir()) == [
        f"{CATALOGUE_FILE_NAME}.broken",
        f"{CATALOGUE_FILE_NAME}.broken-shm",
        f"{CATALOGUE_FILE_NAME}.broken-wal",
    ]
    reader.close()
    assert await storage.load([KEY]) is None


async def test_a_file_that_goes_bad_while_in_use_is_set_aside(
    path: Path, storage: SqliteListingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(50):
        await storage.save(
            replace(STORED_LISTING, key=ListingKey(f"s{number}", "e", "public"), body=b"x" * 5000)
        )
    await storage.close()
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xaa" * (len(raw) - 4096)
    path.write_bytes(raw)
    successor = SqliteListingStorage(path)
    await successor.save(STORED_LISTING)
    assert await successor.load([KEY]) == STORED_LISTING
    await successor.close()
    assert "corrupt" in caplog.text
    assert path.with_name(f"{CATALOGUE_FILE_NAME}.broken").exists()


async def test_accepted_definitions_survive_damage_to_the_listings(
    path: Path, storage: SqliteListingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    key = PinKey("files", "its command")
    entry = PinEntry(pins=b"accepted", seen=b"seen", saved_at=5.0)
    assert await SqlitePinEntryStorage(storage).save(key, entry)
    await storage.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE catalogue")
        connection.execute("CREATE TABLE catalogue (something TEXT)")
    successor = SqliteListingStorage(path)
    await successor.save(STORED_LISTING)
    assert "corrupt" in caplog.text
    assert "tool definitions were kept" in caplog.text
    assert await SqlitePinEntryStorage(successor).read([key]) == (PinEntry(1, b"accepted", b"seen", 5.0),)
    await successor.close()


async def test_pins_of_a_later_version_are_unavailable_for_that_reason(
    path: Path, storage: SqliteListingStorage
) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as later, later:
        later.execute("PRAGMA user_version = 99")
    with pytest.raises(PinsUnavailable, match="later version") as exc_info:
        await SqlitePinEntryStorage(storage).read([PinKey("files")])
    assert "update Toolyard" in str(exc_info.value.hint)


async def test_a_table_that_is_not_ours_is_set_aside(path: Path, storage: SqliteListingStorage) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as foreign:
        foreign.execute("PRAGMA user_version = 1")
        foreign.execute("CREATE TABLE catalogue (something TEXT)")
    foreign.close()
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY]) == STORED_LISTING


async def test_a_fault_that_another_process_has_mended_is_not_mended_twice(
    path: Path, storage: SqliteListingStorage
) -> None:
    await storage.save(STORED_LISTING)
    path.rename(path.with_name("old.db"))
    successor = SqliteListingStorage(path)
    await successor.save(replace(STORED_LISTING, body=b"of the successor"))
    storage._replace_corrupt_file(sqlite3.DatabaseError("seen on the old file"))  # pyright: ignore[reportPrivateUsage]
    assert await successor.load([KEY]) == replace(STORED_LISTING, body=b"of the successor")
    assert not path.with_name(f"{CATALOGUE_FILE_NAME}.broken").exists()
    await successor.close()


async def test_a_file_of_a_later_version_is_left_alone(
    path: Path, storage: SqliteListingStorage, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 99")
        later.execute("CREATE TABLE something (else_ TEXT)")
    later.close()
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY]) is None
    assert caplog.text.count("later version") == 1
    with sqlite3.connect(path) as later:
        assert later.execute("PRAGMA user_version").fetchone() == (99,)
    later.close()


async def test_a_place_where_no_file_can_be_is_an_empty_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocking_file = tmp_path / "file"
    blocking_file.touch()
    storage = SqliteListingStorage(blocking_file / CATALOGUE_FILE_NAME)
    await storage.save(STORED_LISTING)
    assert await storage.load([KEY]) is None
    assert "cannot be used" in caplog.text


async def test_processes_that_begin_and_write_at_once_lose_nothing(path: Path) -> None:
    rounds = 40
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name, str(rounds)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("ann", "bob", "cid")
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = await asyncio.to_thread(writer.communicate, timeout=60)
        assert writer.returncode == 0, errors
        assert errors == ""
    storage = SqliteListingStorage(path)
    for name in ("ann", "bob", "cid"):
        for number in range(rounds):
            listings = await storage.load([ListingKey(name, str(number), "public")])
            assert listings is not None, f"{name} {number} was lost"
    shared_listing = await storage.load([ListingKey("shared", "entry", "public")])
    assert shared_listing is not None
    assert shared_listing.fetched_at == 1000.0 + rounds - 1
    assert shared_listing.body == shared_listing.content_hash.encode() * 2000
    await storage.close()


async def test_a_reader_is_not_held_up_by_a_writer(path: Path, storage: SqliteListingStorage) -> None:
    await storage.save(STORED_LISTING)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE catalogue SET ttl = 1")
    async with asyncio.timeout(30):
        assert await storage.load([KEY]) == STORED_LISTING
    writer.execute("ROLLBACK")
    writer.close()


async def test_the_event_loop_runs_on_while_a_statement_waits(
    path: Path, storage: SqliteListingStorage
) -> None:
    await storage.save(STORED_LISTING)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    saving = asyncio.create_task(
        storage.save(replace(STORED_LISTING, fetched_at=STORED_LISTING.fetched_at + 1))
    )
    for _ in range(100):
        await asyncio.sleep(0)
    assert not saving.done()
    writer.execute("ROLLBACK")
    writer.close()
    async with asyncio.timeout(30):
        await saving


async def test_closing_waits_for_abandoned_writes(path: Path) -> None:
    storage = SqliteListingStorage(path)
    await storage.save(STORED_LISTING)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    newer = replace(STORED_LISTING, fetched_at=STORED_LISTING.fetched_at + 1)
    saving = asyncio.create_task(storage.save(newer))
    await asyncio.sleep(0)
    await cancel(saving)
    closing = asyncio.create_task(storage.close())
    await asyncio.wait({closing}, timeout=0.05)
    assert not closing.done()
    writer.execute("ROLLBACK")
    writer.close()
    async with asyncio.timeout(30):
        await closing
    assert not [each for each in os.listdir("/proc/self/fd") if _target(each) == str(path)]
    assert await load_listing(path) == newer


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
