"""Locks for token refreshes, one at a time among tasks, processes and replicas.

Many authorization servers rotate refresh tokens: the first use invalidates the token, and a second use may
revoke the whole grant. So only one process may refresh a grant, and the others read its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from toolyard.store.locks.file_locks import FileLocks
from toolyard.store.sql.dialects import Engines

__all__ = ["RefreshLocks", "create_refresh_locks"]

_LOCK_FOLDER_NAME = "locks"
_LOCK_TIMEOUT_SECONDS = 120.0
"""Maximum wait for another process. A refresh calls one server, with shorter timeouts."""


class ProcessLocks(Protocol):
    """Locks by key between processes, which end with the process that holds them."""

    def hold(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]: ...


class RefreshLocks:
    """Locks by key among all tasks of all processes.

    Tasks of this process first queue on an asyncio lock. Only the first of them competes with other
    processes, so a queue of tasks costs one connection or one polling loop.
    """

    def __init__(self, process_locks: ProcessLocks) -> None:
        self._process_locks = process_locks
        self._queues: dict[str, _KeyQueue] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold the lock of a key. Raises DatabaseUnavailable if another process holds it for too long."""
        queue = self._queues.setdefault(key, _KeyQueue())
        queue.length += 1
        try:
            async with queue.lock, self._process_locks.hold(key, _LOCK_TIMEOUT_SECONDS):
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
        return RefreshLocks(FileLocks(data_dir / _LOCK_FOLDER_NAME))
    from toolyard.store.locks.advisory import AdvisoryLocks  # loads psycopg

    return RefreshLocks(AdvisoryLocks(engines))
