"""File locks between processes on one machine, which end with the process that holds them.

Waiting processes poll, with growing pauses: a blocking ``flock`` cannot be given a timeout, and would occupy
a thread that cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.sql.row_digests import compute_digest

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _try_share(descriptor: int) -> bool:
        return True  # There are no shared locks.

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _try_share(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


__all__ = ["FileLocks", "UseLock", "hold_file_lock"]

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.01, 0.1


@contextmanager
def hold_file_lock(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock of a file exclusively. Blocks while it waits; call it in a worker thread.

    Raises DatabaseUnavailable if another process holds it for longer than ``seconds``, and OSError.
    """
    deadline, pause = time.monotonic() + seconds, _FIRST_RETRY_SECONDS
    while (descriptor := _try_acquire(path)) is None:
        if time.monotonic() > deadline:
            raise _lock_timeout_error(path, seconds)
        time.sleep(pause)
        pause = min(pause * 1.5, _MAX_RETRY_SECONDS)
    try:
        yield
    finally:
        _release_lock(path, descriptor)


class UseLock:
    """Lock of something that several processes use, and that one may replace while no other uses it.

    Where the file system has no locks, nothing is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def share(self, seconds: float) -> bool:
        """Hold it together with other users. Return False if one has it alone for longer than that."""
        return self._wait(_try_share, seconds)

    def own(self, seconds: float) -> bool:
        """Hold it alone. Return False if there are other users for longer than that."""
        return self._wait(_try_lock, seconds)

    def _wait(self, try_change: Callable[[int], bool], seconds: float) -> bool:
        deadline, pause = time.monotonic() + seconds, _FIRST_RETRY_SECONDS
        with contextlib.suppress(OSError):
            while not self._try(try_change):
                if time.monotonic() > deadline:
                    return False
                time.sleep(pause)
                pause = min(pause * 1.5, _MAX_RETRY_SECONDS)
        return True

    def _try(self, try_change: Callable[[int], bool]) -> bool:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not try_change(self._descriptor):
            return False
        # The last user may have removed the file after it was opened here, see ``_try_acquire``.
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
        deadline, pause = time.monotonic() + seconds, _FIRST_RETRY_SECONDS
        while (descriptor := _try_acquire(path)) is None:
            if time.monotonic() > deadline:
                raise _lock_timeout_error(path, seconds)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _MAX_RETRY_SECONDS)
        try:
            yield
        finally:
            _release_lock(path, descriptor)


def _try_acquire(path: Path) -> int | None:
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


def _release_lock(path: Path, descriptor: int) -> None:
    # Remove the file, or one would remain for every key ever used. Remove it before the lock is released:
    # afterwards the path may lead to the file of the next holder.
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(descriptor)


def _lock_timeout_error(path: Path, seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"another process has held the lock {path} for more than {seconds:g} s",
        hint="stop the Toolyard process that hangs, or wait until it finishes",
    )
