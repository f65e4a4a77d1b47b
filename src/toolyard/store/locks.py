"""Locks between tasks, processes and replicas, which end with the process that holds them.

``RefreshLocks`` are for token refreshes. Many authorization servers rotate refresh tokens: the first use
invalidates the token, and a second use may revoke the whole grant. So only one process may refresh a grant,
and the others read its result. Processes on one machine exclude each other with file locks, replicas with
PostgreSQL's advisory locks.

Processes that wait for a file lock poll, with growing pauses: a blocking ``flock`` cannot be given a timeout,
and would occupy a thread that cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.sql.dialects import Engines, build_postgresql_session_setup
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.stored_values import compute_digest

if TYPE_CHECKING:
    from toolyard.store.sql.postgres_connections import TimedAsyncConnection

__all__ = [
    "AdvisoryLocks",
    "FileLocks",
    "RefreshLocks",
    "SharedFileLock",
    "create_refresh_locks",
    "hold_file_lock",
    "release_file_lock",
    "try_file_lock",
]


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
        try:
            if not shared:  # There are no shared locks.
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int, *, shared: bool = False) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.01, 0.1


@contextmanager
def hold_file_lock(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock of a file exclusively. Blocks while it waits; call it in a worker thread.

    Raises DatabaseUnavailable if another process holds it for longer than ``seconds``, and OSError.
    """
    pauses = _retry_pauses(seconds)
    while (descriptor := try_file_lock(path)) is None:
        if (pause := next(pauses, None)) is None:
            raise _lock_timeout_error(path, seconds)
        time.sleep(pause)
    try:
        yield
    finally:
        release_file_lock(path, descriptor)


class SharedFileLock:
    """Lock of something that several processes use, and that one may replace while no other uses it.

    Where the file system has no locks, nothing is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire_shared(self, seconds: float) -> bool:
        """Hold it together with other users. Return False if one has it alone for longer than that."""
        return self._wait(seconds, shared=True)

    def acquire_exclusive(self, seconds: float) -> bool:
        """Hold it alone. Return False if there are other users for longer than that."""
        return self._wait(seconds, shared=False)

    def _wait(self, seconds: float, *, shared: bool) -> bool:
        pauses = _retry_pauses(seconds)
        with contextlib.suppress(OSError):
            while not self._try(shared=shared):
                if (pause := next(pauses, None)) is None:
                    return False
                time.sleep(pause)
        return True

    def _try(self, *, shared: bool) -> bool:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _try_lock(self._descriptor, shared=shared):
            return False
        # The last user may have removed the file after it was opened here, see ``try_file_lock``.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._descriptor), os.stat(self._path)):
                return True
        os.close(self._descriptor)
        self._descriptor = None
        return False

    def release(self) -> None:
        """Give it up. The last user removes the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            # An exclusive lock proves that there are no other users. A process that opens the file in between
            # finds in ``_try`` that it was removed, and opens a new one.
            if _try_lock(descriptor):
                os.unlink(self._path)
        os.close(descriptor)


class FileLocks:
    """Locks by key, as files in one directory. They exclude other tasks of this process as well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def hold(self, key: str, seconds: float) -> AsyncGenerator[None]:
        """Hold the lock of a key, as ``hold_file_lock`` does, without blocking the event loop."""
        path = self._folder / f"{compute_digest(key)[:32]}.lock"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pauses = _retry_pauses(seconds)
        while (descriptor := try_file_lock(path)) is None:
            if (pause := next(pauses, None)) is None:
                raise _lock_timeout_error(path, seconds)
            await asyncio.sleep(pause)
        try:
            yield
        finally:
            release_file_lock(path, descriptor)


def try_file_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None if it is held elsewhere. Does not wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # The previous holder may have removed the file after it was opened here. The lock of a removed file
        # excludes no process, since others create a new file; so check that the path still leads to this one.
        if _try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def release_file_lock(path: Path, descriptor: int) -> None:
    """Release a lock that ``try_file_lock`` has returned."""
    # Remove the file, or one would remain for every key ever used. Remove it before the lock is released:
    # afterwards the path may lead to the file of the next holder.
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(descriptor)


def _retry_pauses(seconds: float) -> Iterator[float]:
    """Yield growing pauses between attempts, until so many seconds have passed."""
    deadline, pause = time.monotonic() + seconds, _FIRST_RETRY_SECONDS
    while time.monotonic() <= deadline:
        yield pause
        pause = min(pause * 1.5, _MAX_RETRY_SECONDS)


def _lock_timeout_error(path: Path, seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"another process has held the lock {path} for more than {seconds:g} s",
        hint="stop the Toolyard process that hangs, or wait until it finishes",
    )


_LOCK_FOLDER_NAME = "locks"


HoldProcessLock: TypeAlias = Callable[[str, float], AbstractAsyncContextManager[None]]
"""Holds the lock of a key between processes, which ends with the process, after a wait of so many seconds."""


class RefreshLocks:
    """Locks by key among all tasks of all processes.

    Tasks of this process first queue on an asyncio lock. Only the first of them competes with other
    processes, so a queue of tasks costs one connection or one polling loop.
    """

    def __init__(self, hold_process_lock: HoldProcessLock, timeout_seconds: float) -> None:
        """``timeout_seconds`` is the maximum wait for another process."""
        self._hold_process_lock = hold_process_lock
        self._timeout_seconds = timeout_seconds
        self._queues: dict[str, _KeyQueue] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a key. Raises DatabaseUnavailable if another process holds it for too long."""
        queue = self._queues.setdefault(key, _KeyQueue())
        queue.length += 1
        try:
            async with queue.lock, self._hold_process_lock(key, self._timeout_seconds):
                yield
        finally:
            queue.length -= 1
            # Counted, because the lock itself cannot tell that a task is about to wait for it: between the
            # release and the next task the lock is free, and a newcomer would create a second queue.
            if not queue.length:
                del self._queues[key]


@dataclass(slots=True)
class _KeyQueue:
    """Asyncio lock of one key, with the number of tasks that hold it or wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    length: int = 0


def create_refresh_locks(engines: Engines, data_dir: Path) -> RefreshLocks:
    """Return locks for the type of database."""
    if engines.kind == "sqlite":
        return RefreshLocks(FileLocks(data_dir / _LOCK_FOLDER_NAME).hold, engines.limits.lock)
    return RefreshLocks(AdvisoryLocks(engines).hold, engines.limits.lock)


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
            limits = self._engines.limits
            connection = await TimedAsyncConnection.open(self._engines.connect_args, limits.answer)
            await connection.execute(build_postgresql_session_setup(limits))
            # The server ends the wait for the lock with QueryCanceled. The client's own deadline is longer,
            # and only applies if the server is frozen.
            await connection.execute(
                "SELECT set_config('statement_timeout', %s, false)", (f"{int(seconds * 1000)}",)
            )
            connection.answer_timeout = limits.answer + seconds
            # The signed 64-bit number by which PostgreSQL identifies the lock.
            lock_id = int.from_bytes(bytes.fromhex(compute_digest("refresh", key)[:16]), signed=True)
            await connection.execute("SELECT pg_advisory_lock(%s)", (lock_id,))
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
