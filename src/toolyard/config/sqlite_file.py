"""SQLite files beside the database, which several processes may use at once and which can be lost."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.config.file_io import ensure_private_file

__all__ = ["SqliteFile", "SqliteSchema", "write_transaction"]

_BUSY_TIMEOUT_SECONDS = 5.0
_CORRUPT_FILE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""SQLITE_ERROR is an error in a statement. Our statements are fixed, so it means that the tables are not
ours."""
_DATABASE_FILE_SUFFIXES = ("-wal", "-shm", "")
"""Suffixes of the files to move, in this order: SQLite would replay an old log into a new database file."""
_T = TypeVar("_T")


class _NewerSchemaError(Exception):
    """Raised if the file belongs to a later version of Toolyard, which may be running at the same time."""


@dataclass(frozen=True, slots=True)
class SqliteSchema:
    """Tables of a file and settings of its connections."""

    tables: tuple[str, ...]
    """Statements that create the tables unless they exist."""
    pragmas: tuple[str, ...] = ()
    version: int = 0
    replaceable: tuple[str, ...] = ()
    """Tables that are dropped, instead of migrated, in a file of an earlier version."""
    wal: bool = False
    """True for write-ahead logging, so that reads do not block writes."""


class SqliteFile:
    """A file that only its owner can read, opened at first use.

    Every statement runs in a worker thread: a row can have megabytes, and another process may hold the write
    lock for seconds. Errors are logged. A corrupt file is renamed to ``….broken`` and replaced by a new one.
    """

    def __init__(
        self,
        path: Path,
        label: str,
        schema: SqliteSchema,
        log: logging.Logger,
        *,
        salvage: Callable[[Path, sqlite3.DatabaseError], None],
        keep_open: bool = True,
    ) -> None:
        """``salvage`` is called with the new name of a corrupt file. Without ``keep_open``, the file is
        closed after each use."""
        self._path = path
        self._label = label
        self._schema = schema
        self._log = log
        self._salvage = salvage
        self._keep_open = keep_open
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._pending_tasks = BackgroundTasks()
        self._is_closed = False
        self.is_newer = False
        """True once the file turned out to belong to a later version of Toolyard."""

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Run statements in a worker thread. Return None if the file cannot be used or was closed, or if
        ``work`` raises ValueError for its values."""
        if self._is_closed:
            return None
        # A thread cannot be cancelled: if the caller is cancelled, the statement still runs, and after
        # close() it would open the file again. As a separate, shielded task it can be awaited by close().
        return await asyncio.shield(
            self._pending_tasks.spawn(asyncio.to_thread(self._run_with_recovery, work))
        )

    async def close(self) -> None:
        """Close the file for good, after all pending statements have ended."""
        # Before the first await: a call that loses its connection may look into the file once more, and would
        # open it again.
        self._is_closed = True
        await self._pending_tasks.wait()
        await asyncio.to_thread(self._close_in_thread)

    def open(self) -> sqlite3.Connection:
        """Return the open connection, for use in ``salvage``."""
        if self._connection is not None:
            return self._connection
        status = ensure_private_file(self._path)
        self._identity = (status.st_dev, status.st_ino)
        # Each use may run in another worker thread, one at a time under the lock. Transactions are begun
        # explicitly, see ``write_transaction``.
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _run_with_recovery(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        with self._lock:
            try:
                try:
                    return work(self.open())
                except sqlite3.DatabaseError as error:
                    if not _is_corrupt(error):
                        raise
                    self._replace_corrupt_file(error)
                    return work(self.open())
            except _NewerSchemaError:
                self.is_newer = True
                return None
            except (sqlite3.Error, OSError, ValueError) as error:
                self._log.warning("the %s file %s cannot be used: %s", self._label, self._path, error)
                return None
            finally:
                if not self._keep_open:
                    self._close_connection()

    def _prepare(self, db: sqlite3.Connection) -> None:
        schema = self._schema
        for pragma in schema.pragmas:
            db.execute(f"PRAGMA {pragma}")
        if _read_version(db) != schema.version:
            if schema.wal:
                _enable_wal(db)
            # Read the version again under the write lock: another process may have created the tables.
            with write_transaction(db):
                version = _read_version(db)
                if version > schema.version:
                    self._warn_newer_version_once()
                    raise _NewerSchemaError
                if version != schema.version:
                    for table in schema.replaceable:
                        db.execute(f"DROP TABLE IF EXISTS {table}")
                    db.execute(f"PRAGMA user_version = {schema.version}")
        for statement in schema.tables:
            db.execute(statement)

    def _warn_newer_version_once(self) -> None:
        if not self.is_newer:
            message = "the %s file %s was written by a later version of Toolyard and is not used"
            self._log.warning(message, self._label, self._path)

    def _replace_corrupt_file(self, error: sqlite3.DatabaseError) -> None:
        identity = self._identity
        self._close_connection()
        status = os.stat(self._path)
        if identity != (status.st_dev, status.st_ino):
            return  # Another process detected the same error and has already created a new file.
        broken = self._path.with_name(self._path.name + ".broken")
        for suffix in _DATABASE_FILE_SUFFIXES:
            source = self._path.with_name(self._path.name + suffix)
            if source.exists():
                os.replace(source, broken.with_name(broken.name + suffix))
        self._salvage(broken, error)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_in_thread(self) -> None:
        with self._lock:
            self._close_connection()


@contextmanager
def write_transaction(db: sqlite3.Connection) -> Generator[None]:
    """Run a transaction that takes the write lock at its start, so that it cannot fail half-way as busy."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _read_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _enable_wal(db: sqlite3.Connection) -> None:
    """Switch to write-ahead logging.

    The mode is stored in the file. If another process is using it, that process enables the mode.
    """
    try:
        db.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise


def _is_corrupt(error: sqlite3.DatabaseError) -> bool:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _CORRUPT_FILE_CODES
