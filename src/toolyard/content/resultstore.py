"""Texts that were too long, in one file on disk: each principal's own, for some time, within a size."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from toolyard.content.handles import Handles, Kept
from toolyard.content.memory import MemoryHandles
from toolyard.model.principal import Principal
from toolyard.model.server import Trust

__all__ = ["FILE_NAME", "ResultStore"]

FILE_NAME = "results.db"
"""The file's name in the data directory."""

_BUSY_SECONDS = 5.0
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_TABLE = """
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
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ResultStore:
    """Gives each principal a store of their own, in a file that its owner alone may read.

    A text is kept for ``seconds`` after it was last put in. Where all together take more than ``most`` bytes,
    or those of one principal more than ``share``, the oldest go; the newest always stays. Each use opens the
    file and closes it again: results that are too long are rare, and many processes may share it. Where the
    file cannot be used, memory serves.
    """

    def __init__(
        self, path: Path, *, seconds: float = 86_400.0, most: int = 256_000_000, share: int = 64_000_000
    ) -> None:
        self._path = path
        self._seconds = seconds
        self._most = most
        self._share = share
        self._spare: dict[str, MemoryHandles] = {}

    def of(self, principal: Principal) -> Handles:
        """The store of one principal."""
        return _Own(self, principal.id)

    async def keep(self, principal_id: str, handle: str, kept: Kept) -> None:
        """Put a text in."""
        if not await asyncio.to_thread(self._used, lambda db: self._keep(db, principal_id, handle, kept)):
            await self._spare.setdefault(principal_id, MemoryHandles(self._share // 16)).keep(handle, kept)

    async def read(self, principal_id: str, handle: str) -> Kept | None:
        """What this principal has under the handle."""
        found = await asyncio.to_thread(self._used, lambda db: _read(db, principal_id, handle))
        if found is not None:
            return found
        spare = self._spare.get(principal_id)
        return None if spare is None else await spare.read(handle)

    async def has_any(self, principal_id: str) -> bool:
        """Whether the principal has anything to read."""
        if not self._path.exists():
            return principal_id in self._spare
        found = await asyncio.to_thread(self._used, lambda db: _has_any(db, principal_id))
        return bool(found) or principal_id in self._spare

    def _used(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        for again in (True, False):
            try:
                with self._opened() as db:
                    return work(db)
            except (sqlite3.Error, OSError, zlib.error, ValueError) as error:
                _log.warning("the file of results %s cannot be used: %s", self._path, error)
                code = getattr(error, "sqlite_errorcode", None)
                if not again or code not in _CORRUPT:
                    return None
                # Nothing in it is needed for long: a broken one is begun anew.
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
        return None

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made before SQLite sees it, so that it is never readable by others.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA secure_delete = ON")
            db.execute(_TABLE)
            yield db

    def _keep(self, db: sqlite3.Connection, principal_id: str, handle: str, kept: Kept) -> bool:
        body = zlib.compress(kept.text.encode("utf-8", "surrogatepass"), 1)
        owned = (principal_id, handle, kept.trust.value, kept.server)
        with _transaction(db):
            (newest,) = db.execute("SELECT coalesce(max(used), 0) + 1 FROM result").fetchone()
            db.execute("DELETE FROM result WHERE expires <= ?", (time.time(),))
            row = (*owned, time.time() + self._seconds, newest, len(body), body)
            db.execute("INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            _make_room(db, "principal = ?", (principal_id,), self._share, newest)
            _make_room(db, "1", (), self._most, newest)
        db.execute("PRAGMA incremental_vacuum")
        return True


class _Own:
    """One principal's part."""

    def __init__(self, store: ResultStore, principal_id: str) -> None:
        self._store = store
        self._principal_id = principal_id

    async def keep(self, handle: str, kept: Kept) -> None:
        await self._store.keep(self._principal_id, handle, kept)

    async def read(self, handle: str) -> Kept | None:
        return await self._store.read(self._principal_id, handle)

    async def has_any(self) -> bool:
        return await self._store.has_any(self._principal_id)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _make_room(db: sqlite3.Connection, whose: str, values: tuple[str, ...], most: int, newest: int) -> None:
    """Delete the oldest until the rest fits; never the newest."""
    rows = db.execute(f"SELECT used, size FROM result WHERE {whose} ORDER BY used DESC", values).fetchall()
    held = 0
    for used, size in rows:
        held += size
        if held > most and used != newest:
            db.execute(f"DELETE FROM result WHERE {whose} AND used <= ?", (*values, used))
            return


def _read(db: sqlite3.Connection, principal_id: str, handle: str) -> Kept | None:
    row = db.execute(
        "SELECT trust, server, body FROM result WHERE principal = ? AND handle = ? AND expires > ?",
        (principal_id, handle, time.time()),
    ).fetchone()
    if row is None:
        return None
    trust, server, body = row
    return Kept(zlib.decompress(body).decode("utf-8", "surrogatepass"), Trust(trust), server)


def _has_any(db: sqlite3.Connection, principal_id: str) -> bool:
    query = "SELECT 1 FROM result WHERE principal = ? AND expires > ? LIMIT 1"
    return db.execute(query, (principal_id, time.time())).fetchone() is not None
