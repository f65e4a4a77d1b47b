"""Locks between processes on one machine, which end with the process that holds them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.sql.row_digests import compute_digest

if sys.platform == "win32":
    import msvcrt

    def _try(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


__all__ = ["FileLocks", "hold_file_lock"]

_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.01, 0.1


@contextmanager
def hold_file_lock(path: Path, seconds: float) -> Generator[None]:
    """Hold the lock of a file, alone among processes. For worker threads: it sleeps while it waits.

    Raises DatabaseUnavailable where somebody else holds it for longer than ``seconds``, and OSError.
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


class FileLocks:
    """One lock for each key, in a folder. Among the tasks of this process, those who wait queue up first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def hold(self, key: str, seconds: float) -> AsyncGenerator[None]:
        """See ``holding``; the event loop goes on while this waits."""
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
    """A descriptor that holds the lock, or None: somebody else does. Does not wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Whoever held it may have removed the file; then the lock of the old one excludes nobody.
        if _try(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _release_lock(path: Path, descriptor: int) -> None:
    # Removed before it is let go, so that no file stays behind for every key there ever was.
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(descriptor)


def _lock_timeout_error(path: Path, seconds: float) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"another process has held the lock {path} for more than {seconds:g} s",
        hint="end the Toolyard process that hangs, or wait for it",
    )
