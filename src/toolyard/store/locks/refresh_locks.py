"""Locks for token refreshes, one at a time among tasks, processes and replicas.

Many authorization servers rotate refresh tokens: the first use invalidates the token, and a second use may
revoke the whole grant. So only one process may refresh a grant, and the others read its result.

Replicas exclude each other with PostgreSQL's advisory locks, which end with the connection that holds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.locks.file_locks import FileLocks
from toolyard.store.sql.dialects import POSTGRESQL_SESSION_SETUP, Engines
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.row_digests import compute_digest

if TYPE_CHECKING:
    from toolyard.store.sql.postgres_connections import TimedAsyncConnection

__all__ = ["AdvisoryLocks", "RefreshLocks", "create_refresh_locks"]


_LOCK_FOLDER_NAME = "locks"


class ProcessLocks(Protocol):
    """Locks by key between processes, which end with the process that holds them."""

    def hold(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]: ...


class RefreshLocks:
    """Locks by key among all tasks of all processes.

    Tasks of this process first queue on an asyncio lock. Only the first of them competes with other
    processes, so a queue of tasks costs one connection or one polling loop.
    """

    def __init__(self, process_locks: ProcessLocks, timeout_seconds: float) -> None:
        """``timeout_seconds`` is the maximum wait for another process."""
        self._process_locks = process_locks
        self._timeout_seconds = timeout_seconds
        self._queues: dict[str, _KeyQueue] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a key. Raises DatabaseUnavailable if another process holds it for too long."""
        queue = self._queues.setdefault(key, _KeyQueue())
        queue.length += 1
        try:
            async with queue.lock, self._process_locks.hold(key, self._timeout_seconds):
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[key]


class _KeyQueue:
    """Asyncio lock of one key, with the number of tasks that hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


def create_refresh_locks(engines: Engines, data_dir: Path) -> RefreshLocks:
    """Return locks for the type of database."""
    if engines.kind == "sqlite":
        return RefreshLocks(FileLocks(data_dir / _LOCK_FOLDER_NAME), engines.limits.lock)
    return RefreshLocks(AdvisoryLocks(engines), engines.limits.lock)


_MAX_LOCK_CONNECTIONS = 10
"""Maximum number of connections outside the pool that hold or wait for a lock."""


class AdvisoryLocks:
    """Locks by key, each on a separate connection.

    A lock may be held for as long as a token request takes. A pooled connection would be missing for other
    work meanwhile, and closing a separate one releases the lock even if the holder was cancelled.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._slots = asyncio.Semaphore(_MAX_LOCK_CONNECTIONS)

    @asynccontextmanager
    async def hold(self, key: str, seconds: float) -> AsyncGenerator[None]:
        """Hold the lock of a key, exclusively among all users of the database.

        Raises DatabaseUnavailable, also if another replica holds it for longer than ``seconds``.
        """
        async with self._slots:
            connection = await self._acquire_lock(key, seconds)
            try:
                yield
            finally:
                await connection.close()

    async def _acquire_lock(self, key: str, seconds: float) -> TimedAsyncConnection:
        import psycopg  # imported late: slow to load, and not needed with SQLite
        from psycopg.errors import QueryCanceled

        from toolyard.store.sql.postgres_connections import TimedAsyncConnection  # loads psycopg

        connection: TimedAsyncConnection | None = None
        try:
            limit = self._engines.limits.answer
            connection = await TimedAsyncConnection.open(self._engines.connect_args, limit)
            await connection.execute(POSTGRESQL_SESSION_SETUP)
            # The server ends the wait for the lock with QueryCanceled. The client's own deadline is longer,
            # and only applies if the server is frozen.
            await connection.execute("SELECT set_config(%s, %s, false)", _statement_timeout(seconds))
            connection.answer_timeout = limit + seconds
            await connection.execute("SELECT pg_advisory_lock(%s)", (_lock_id(key),))
            return connection
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, QueryCanceled):
                raise DatabaseUnavailable(
                    f"another replica has held the lock for '{key}' for more than {seconds:g} s",
                    hint="stop the Toolyard process that hangs, or wait until it finishes",
                ) from None
            if isinstance(error, psycopg.Error):
                raise unavailable_error(self._engines, error) from error
            raise


def _lock_id(key: str) -> int:
    """Return the signed 64-bit number by which PostgreSQL identifies the lock of a key."""
    return int.from_bytes(bytes.fromhex(compute_digest("refresh", key)[:16]), signed=True)


def _statement_timeout(seconds: float) -> tuple[str, str]:
    return "statement_timeout", f"{int(seconds * 1000)}"
