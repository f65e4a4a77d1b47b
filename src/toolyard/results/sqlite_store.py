"""Storage of long results in a SQLite file."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from toolyard.config.sqlite_file import SqliteFile, SqliteSchema, write_transaction
from toolyard.results.result_store import (
    PrincipalResultStores,
    ResultRow,
    Retention,
    StoredResult,
    parse_stored_result,
)

__all__ = ["RESULTS_FILE_NAME", "SqliteResultStore"]

RESULTS_FILE_NAME = "results.db"
"""Name of the file in the data directory."""

_RESULT_TABLE = """
CREATE TABLE IF NOT EXISTS result (
    principal TEXT NOT NULL,
    handle TEXT NOT NULL,
    trust TEXT NOT NULL,
    server TEXT NOT NULL,
    expires REAL NOT NULL,
    used INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (principal, handle)
)
"""
_SCHEMA = SqliteSchema(
    (_RESULT_TABLE,),
    # Results may be confidential: overwrite deleted ones, and return their pages to the file system.
    pragmas=("auto_vacuum = INCREMENTAL", "secure_delete = ON"),
)
_log = logging.getLogger("toolyard.content.resultstore")


class SqliteResultStore(PrincipalResultStores):
    """Result stores in a file, limited by ``Retention``.

    The file is closed after each operation, since long results are rare and several processes may share it.
    While it cannot be used, results are stored in memory.
    """

    def __init__(
        self,
        path: Path,
        retention: Retention = Retention(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(retention, clock)
        self._path = path
        self._file = SqliteFile(path, "results", _SCHEMA, _log, salvage=_delete_corrupt_file, keep_open=False)

    async def put(self, row: ResultRow) -> bool:
        def write_row(db: sqlite3.Connection) -> bool:
            with write_transaction(db):
                db.execute("DELETE FROM result WHERE expires <= ?", (self.clock(),))
                _put_row(db, row)
                # The principal's limit first: one who stores much should lose own results before those of
                # others.
                _delete_oldest(db, "principal = :principal", self.retention.max_principal_bytes, row)
                _delete_oldest(db, "TRUE", self.retention.max_total_bytes, row)
            db.execute("PRAGMA incremental_vacuum")
            return True

        return bool(await self._file.run(write_row))

    async def find(self, principal: str, handle: str) -> StoredResult | None:
        query = "SELECT trust, server, body FROM result WHERE principal = ? AND handle = ? AND expires > ?"

        def read_row(db: sqlite3.Connection) -> StoredResult | None:
            row = db.execute(query, (principal, handle, self.clock())).fetchone()
            return None if row is None else parse_stored_result(*row)

        return await self._file.run(read_row)

    async def has_stored(self, principal: str) -> bool:
        query = "SELECT 1 FROM result WHERE principal = ? AND expires > ? LIMIT 1"
        values = (principal, self.clock())
        return self._path.exists() and bool(
            await self._file.run(lambda db: db.execute(query, values).fetchone())
        )


def _delete_corrupt_file(broken: Path, error: sqlite3.DatabaseError) -> None:
    # Results are kept for a day at most, so a corrupt file is deleted instead of repaired.
    broken.unlink(missing_ok=True)
    _log.warning("the results file was corrupt (%s) and has been replaced by an empty one", error)


def _put_row(db: sqlite3.Connection, row: ResultRow) -> None:
    # A counter instead of a time: it orders rows even if the clock is set back.
    (used,) = db.execute("SELECT coalesce(max(used), 0) + 1 FROM result").fetchone()
    values = (row.principal, row.handle, row.trust, row.server, row.expires_at, used, row.size, row.body)
    db.execute("INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)


def _delete_oldest(db: sqlite3.Connection, condition: str, max_bytes: int, newest: ResultRow) -> None:
    """Delete the oldest matching rows until the rest is within a limit, but never the newest."""
    db.execute(
        "DELETE FROM result WHERE (principal, handle) IN (SELECT principal, handle FROM (SELECT principal, "
        f"handle, sum(size) OVER (ORDER BY used DESC) AS total FROM result WHERE {condition}) "
        "WHERE total > :max_bytes) AND (principal, handle) <> (:principal, :handle)",
        {"max_bytes": max_bytes, "principal": newest.principal, "handle": newest.handle},
    )
