"""Storage of listings and first-use pins in a SQLite file that several processes may use at once."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from toolyard.catalog.listing_storage import MAX_FAILURE_AGE_SECONDS, ListingKey, StoredFailure, StoredListing
from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.config.sqlite_file import SqliteFile, SqliteSchema, write_transaction

__all__ = ["CATALOGUE_FILE_NAME", "SqliteListingStorage", "SqlitePinEntryStorage", "read_pin_entries"]

CATALOGUE_FILE_NAME = "catalogue.db"
"""Name of the file in the data directory."""

_MAX_AGE_SECONDS = 90 * 86_400.0
"""Age at which listings are deleted. They belong to servers that were removed or are no longer used."""
_MAX_FUTURE_SECONDS = 86_400.0
"""Listings further in the future are deleted: they were saved with a wrong clock, and would count as newer
than every listing to come."""
_CATALOGUE_TABLE = """
CREATE TABLE IF NOT EXISTS catalogue (
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
"""A table of its own: deleting a listing must not delete the accepted definitions."""

_FAILURES_TABLE = """
CREATE TABLE IF NOT EXISTS failures (
    server_id TEXT NOT NULL,
    entry_hash TEXT NOT NULL,
    scope TEXT NOT NULL,
    failed_at REAL NOT NULL,
    cause TEXT NOT NULL,
    hint TEXT,
    PRIMARY KEY (server_id, entry_hash, scope)
)
"""

_SCHEMA = SqliteSchema(
    (_CATALOGUE_TABLE, _PINS_TABLE, _FAILURES_TABLE),
    pragmas=("synchronous = NORMAL",),
    version=1,
    # Listings can be fetched again.
    replaceable=("catalogue", "failures"),
    wal=True,
)

_log = logging.getLogger("toolyard.catalog.sqlite")
_T = TypeVar("_T")


class SqliteListingStorage(SqliteFile):
    """A ``ListingStorage`` and ``FailureStorage`` in one file. Errors are treated like an empty storage."""

    def __init__(self, path: Path) -> None:
        """Create a storage in the file ``path``. The file is opened at first use."""
        super().__init__(path, "catalogue", _SCHEMA, _log, salvage=self._salvage_pins)

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        return await self.run(lambda db: _load_listing(db, keys, newer_than))

    async def save(self, stored: StoredListing) -> None:
        await self.run(lambda db: _save_listing(db, stored))

    async def expire(self, server_id: str) -> None:
        await self.run(
            lambda db: db.execute("UPDATE catalogue SET ttl = 0 WHERE server_id = ?", (server_id,))
        )

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        statement = "DELETE FROM catalogue WHERE server_id = ? AND (? IS NULL OR scope = ?)"
        await self.run(lambda db: db.execute(statement, (server_id, scope, scope)))

    async def load_failure(self, key: ListingKey) -> StoredFailure | None:
        return await self.run(lambda db: _load_failure(db, key))

    async def save_failure(self, key: ListingKey, failure: StoredFailure) -> None:
        await self.run(lambda db: _save_failure(db, key, failure))

    async def forget_failures(self, server_id: str) -> None:
        await self.run(lambda db: db.execute("DELETE FROM failures WHERE server_id = ?", (server_id,)))

    def _salvage_pins(self, broken: Path, error: sqlite3.DatabaseError) -> None:
        # Listings are fetched again. Pins are not: without them a changed server would be trusted again.
        pins = "its accepted tool definitions were kept"
        try:
            for pin_key, entry in read_pin_entries(broken):
                _save_entry(self.open(), pin_key, replace(entry, revision=0))
        except sqlite3.Error:
            pins = (
                "its accepted tool definitions are lost: the tools that each server lists next are accepted"
            )
        message = "the catalogue file %s is corrupt (%s); it was renamed to %s, and %s"
        _log.warning(message, self._path, error, broken, pins)


class SqlitePinEntryStorage:
    """A ``PinEntryStorage`` in the catalogue file, for the pins of configured servers.

    Unlike listings, pins cannot be fetched again, so all methods raise PinsUnavailable on errors.
    """

    def __init__(self, file: SqliteListingStorage) -> None:
        self._file = file

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return tuple(entry.revision for entry in await self.read(pin_keys))

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        result = await self._file.run(lambda db: tuple(_read_entry(db, pin_key) for pin_key in pin_keys))
        return self._require_result(result)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        return self._require_result(await self._file.run(lambda db: _save_entry(db, pin_key, entry)))

    def _require_result(self, result: _T | None) -> _T:
        if result is not None:
            return result
        if self._file.is_newer:
            message = "the catalogue file was written by a later version of Toolyard"
            raise PinsUnavailable(message, hint="update Toolyard, or restore a backup from before the update")
        raise PinsUnavailable("the catalogue file cannot be used", hint="make the data directory writable")


def read_pin_entries(path: Path) -> list[tuple[PinKey, PinEntry]]:
    """Return all pins of a catalogue file, without changing it; none if it does not exist.

    Raises sqlite3.Error if it cannot be read.
    """
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pins'").fetchone():
            return []
        rows = db.execute("SELECT server_id, entry, revision, pins, seen, saved_at FROM pins").fetchall()
    return [(PinKey(server_id, entry), PinEntry(*values)) for server_id, entry, *values in rows]


def _read_entry(db: sqlite3.Connection, pin_key: PinKey) -> PinEntry:
    row = db.execute(
        "SELECT revision, pins, seen, saved_at FROM pins WHERE server_id = ? AND entry = ?",
        (pin_key.server_id, pin_key.instance_id),
    ).fetchone()
    return PinEntry() if row is None else PinEntry(*row)


def _save_entry(db: sqlite3.Connection, pin_key: PinKey, entry: PinEntry) -> bool:
    values = (entry.revision + 1, entry.pins, entry.seen, entry.saved_at)
    key = (pin_key.server_id, pin_key.instance_id)
    # Optimistic locking: the row is written only if it still has the revision that the caller has read.
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
    # Bodies are large: find the newest row first, then read only its body.
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
    with write_transaction(db):
        valid_range = (stored.fetched_at - _MAX_AGE_SECONDS, stored.fetched_at + _MAX_FUTURE_SECONDS)
        db.execute("DELETE FROM catalogue WHERE fetched_at NOT BETWEEN ? AND ?", valid_range)
        # SQLite does not rewrite the pages of an unchanged body.
        db.execute(
            "INSERT INTO catalogue (server_id, entry_hash, scope, content_hash, fetched_at, ttl, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (server_id, entry_hash, scope) DO UPDATE SET"
            " content_hash = excluded.content_hash, fetched_at = excluded.fetched_at,"
            " ttl = excluded.ttl, body = excluded.body WHERE excluded.fetched_at >= fetched_at",
            (*stored.key, stored.content_hash, stored.fetched_at, stored.ttl, stored.body),
        )


def _load_failure(db: sqlite3.Connection, key: ListingKey) -> StoredFailure | None:
    row = db.execute(
        "SELECT failed_at, cause, hint FROM failures WHERE server_id = ? AND entry_hash = ? AND scope = ?",
        key,
    ).fetchone()
    return row and StoredFailure(float(row[0]), str(row[1]), row[2])


def _save_failure(db: sqlite3.Connection, key: ListingKey, failure: StoredFailure) -> None:
    with write_transaction(db):
        oldest = failure.failed_at - MAX_FAILURE_AGE_SECONDS
        db.execute("DELETE FROM failures WHERE failed_at < ?", (oldest,))
        db.execute(
            "INSERT OR REPLACE INTO failures (server_id, entry_hash, scope, failed_at, cause, hint)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (*key, failure.failed_at, failure.cause, failure.hint),
        )
