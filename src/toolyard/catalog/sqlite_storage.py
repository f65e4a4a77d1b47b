"""Listings in one small SQLite file that several processes may use at once."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.catalog.storage import ListingKey, StoredListing

__all__ = ["CATALOGUE_FILE_NAME", "SqliteCatalogueStorage", "SqlitePinEntryStorage"]

CATALOGUE_FILE_NAME = "catalogue.db"
"""The file's name in the data directory."""

_SCHEMA_VERSION = 1
_BUSY_TIMEOUT_SECONDS = 5.0
_MAX_AGE_SECONDS = 90 * 86_400.0
"""Entries that nobody fetched for a season belong to servers that are gone."""
_MAX_FUTURE_SECONDS = 86_400.0
"""Entries so far ahead are of a clock that was wrong, and would stand in the way of those to come."""
_CORRUPT_FILE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""The last is an error in a statement. Ours are fixed, so it means that the tables are not ours."""
_DATABASE_FILE_SUFFIXES = ("-wal", "-shm", "")
"""The log goes before the file itself: a new file beside an old log would have it replayed into it."""

_CATALOGUE_TABLE = """
CREATE TABLE catalogue (
    server_id TEXT NOT NULL,
    entry_hash TEXT NOT NULL,
    scope TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    fetched_at REAL NOT NULL,
    ttl REAL NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (server_id, entry_hash, scope)
)
"""

_PINS_TABLE = """
CREATE TABLE IF NOT EXISTS pins (
    server_id TEXT NOT NULL,
    entry TEXT NOT NULL,
    revision INTEGER NOT NULL,
    pins BLOB NOT NULL,
    seen BLOB,
    saved_at REAL NOT NULL,
    PRIMARY KEY (server_id, entry)
)
"""
"""Beside the listings and not among them: forgetting a listing must not forget what was accepted."""

_log = logging.getLogger("toolyard.catalog.sqlite")
_T = TypeVar("_T")


class _NewerSchemaError(Exception):
    """The file belongs to a later version of Toolyard, which may be running beside us."""


class SqliteCatalogueStorage:
    """A ``CatalogueStorage`` in one file, readable by its owner only.

    Every statement runs in a worker thread: a body can have megabytes, and another process may hold the
    write lock for seconds. A fault is logged and counts as an empty storage; a corrupt file is set aside as
    ``catalogue.db.broken`` and a new one begun.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is the file. It is opened by the first use, not here."""
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file_identity: tuple[int, int] | None = None
        self._has_warned_of_version = False
        self._pending_tasks: set[asyncio.Task[Any]] = set()

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        return await self.run(lambda db: _load_listing(db, keys, newer_than))

    async def save(self, stored: StoredListing) -> None:
        await self.run(lambda db: _save_listing(db, stored))

    async def expire(self, server_id: str) -> None:
        await self.run(lambda db: _expire_listings(db, server_id))

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        await self.run(lambda db: _delete_listings(db, server_id, scope))

    async def close(self) -> None:
        """Let go of the file, when all that was begun is done. A later use opens it again."""
        while self._pending_tasks:
            await asyncio.wait(self._pending_tasks)
        await asyncio.to_thread(self._close_in_thread)

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Run statements in a worker thread. None where the file cannot be used."""
        # A statement whose waiter was cancelled still runs in its thread, and after a close it would open the
        # file again: so it is a task of its own, for which closing can wait.
        task = asyncio.create_task(asyncio.to_thread(self._run_with_recovery, work))
        self._pending_tasks.add(task)
        task.add_done_callback(self._pending_tasks.discard)
        return await asyncio.shield(task)

    def _run_with_recovery(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        with self._lock:
            try:
                try:
                    return work(self._open_connection())
                except sqlite3.DatabaseError as error:
                    if not _is_corrupt(error):
                        raise
                    self._move_corrupt_file(error)
                    return work(self._open_connection())
            except _NewerSchemaError:
                return None
            except (sqlite3.Error, OSError) as error:
                _log.warning("the catalogue file %s cannot be used: %s", self._path, error)
                return None

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file is made before SQLite sees it, so that it is never readable by others, not even empty;
        # SQLite gives its side files the same mode.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if found.st_mode & 0o077:
            os.chmod(self._path, 0o600)
        self._file_identity = (found.st_dev, found.st_ino)
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare_schema(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare_schema(self, db: sqlite3.Connection) -> None:
        if _read_schema_version(db) != _SCHEMA_VERSION:
            _enable_wal(db)
            with _write_transaction(db):
                version = _read_schema_version(db)
                if version > _SCHEMA_VERSION:
                    self._warn_newer_version_once()
                    raise _NewerSchemaError
                if version != _SCHEMA_VERSION:
                    db.execute("DROP TABLE IF EXISTS catalogue")
                    db.execute(_CATALOGUE_TABLE)
                    db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        db.execute(_PINS_TABLE)
        db.execute("PRAGMA synchronous = NORMAL")

    def _warn_newer_version_once(self) -> None:
        if not self._has_warned_of_version:
            self._has_warned_of_version = True
            _log.warning(
                "the catalogue file %s is of a later version of Toolyard and is left alone", self._path
            )

    def _move_corrupt_file(self, error: sqlite3.DatabaseError) -> None:
        identity = self._file_identity
        self._close_connection()
        found = os.stat(self._path)
        if identity != (found.st_dev, found.st_ino):
            return  # Another process saw the same fault and has begun a new file already.
        broken = self._path.with_name(self._path.name + ".broken")
        _log.warning("the catalogue file %s is corrupt (%s); it is now %s", self._path, error, broken)
        for suffix in _DATABASE_FILE_SUFFIXES:
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                os.replace(source, broken.with_name(broken.name + suffix))

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_in_thread(self) -> None:
        with self._lock:
            self._close_connection()


class SqlitePinEntryStorage:
    """An EntryStorage in the catalogue file, for the pins of configured servers. Raises PinsUnavailable."""

    def __init__(self, file: SqliteCatalogueStorage) -> None:
        self._file = file

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return tuple(entry.revision for entry in await self.read(pin_keys))

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        found = await self._file.run(lambda db: tuple(_read_entry(db, place) for place in pin_keys))
        return self._require_result(found)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        return self._require_result(await self._file.run(lambda db: _save_entry(db, pin_key, entry)))

    def _require_result(self, found: _T | None) -> _T:
        if found is None:
            raise PinsUnavailable(
                "the catalogue file cannot be used", hint="the data directory must be writable"
            )
        return found


def _read_entry(db: sqlite3.Connection, place: PinKey) -> PinEntry:
    row = db.execute(
        "SELECT revision, pins, seen, saved_at FROM pins WHERE server_id = ? AND entry = ?",
        (place.server_id, place.instance_id),
    ).fetchone()
    return PinEntry() if row is None else PinEntry(*row)


def _save_entry(db: sqlite3.Connection, place: PinKey, entry: PinEntry) -> bool:
    values = (entry.revision + 1, entry.pins, entry.seen, entry.saved_at)
    key = (place.server_id, place.instance_id)
    if entry.revision:
        changed = db.execute(
            "UPDATE pins SET revision = ?, pins = ?, seen = ?, saved_at = ?"
            " WHERE server_id = ? AND entry = ? AND revision = ?",
            (*values, *key, entry.revision),
        )
    else:
        changed = db.execute(
            "INSERT INTO pins (revision, pins, seen, saved_at, server_id, entry)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*values, *key),
        )
    return changed.rowcount > 0


def _load_listing(
    db: sqlite3.Connection, keys: Sequence[ListingKey], newer_than: float
) -> StoredListing | None:
    newest: StoredListing | None = None
    for key in keys:
        row = db.execute(
            "SELECT content_hash, fetched_at, ttl FROM catalogue"
            " WHERE server_id = ? AND entry_hash = ? AND scope = ? AND fetched_at > ?",
            (*key, newer_than),
        ).fetchone()
        if row is not None and (newest is None or row[1] > newest.fetched_at):
            newest = StoredListing(key, str(row[0]), float(row[1]), float(row[2]), b"")
    if newest is None:
        return None
    row = db.execute(
        "SELECT content_hash, fetched_at, ttl, body FROM catalogue"
        " WHERE server_id = ? AND entry_hash = ? AND scope = ?",
        newest.key,
    ).fetchone()
    return row and StoredListing(newest.key, str(row[0]), float(row[1]), float(row[2]), bytes(row[3]))


def _save_listing(db: sqlite3.Connection, stored: StoredListing) -> None:
    with _write_transaction(db):
        right = (stored.fetched_at - _MAX_AGE_SECONDS, stored.fetched_at + _MAX_FUTURE_SECONDS)
        db.execute("DELETE FROM catalogue WHERE fetched_at NOT BETWEEN ? AND ?", right)
        # SQLite compares before it overwrites: contents that are still the same are not written again.
        db.execute(
            "INSERT INTO catalogue (server_id, entry_hash, scope, content_hash, fetched_at, ttl, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (server_id, entry_hash, scope) DO UPDATE SET"
            " content_hash = excluded.content_hash, fetched_at = excluded.fetched_at,"
            " ttl = excluded.ttl, body = excluded.body WHERE excluded.fetched_at >= fetched_at",
            (*stored.key, stored.content_hash, stored.fetched_at, stored.ttl, stored.body),
        )


def _expire_listings(db: sqlite3.Connection, server_id: str) -> None:
    db.execute("UPDATE catalogue SET ttl = 0 WHERE server_id = ?", (server_id,))


def _delete_listings(db: sqlite3.Connection, server_id: str, scope: str | None) -> None:
    db.execute(
        "DELETE FROM catalogue WHERE server_id = ? AND (? IS NULL OR scope = ?)", (server_id, scope, scope)
    )


def _read_schema_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _enable_wal(db: sqlite3.Connection) -> None:
    """Readers and a writer at once. The mode stays with the file, so one process has to succeed, once."""
    try:
        db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise


@contextmanager
def _write_transaction(db: sqlite3.Connection) -> Generator[None]:
    """A transaction that has the write lock from its start, so that it never fails half way."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPT_FILE_CODES
