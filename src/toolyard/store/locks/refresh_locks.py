"""Who may refresh a sign-in: one at a time, among tasks, processes and replicas."""

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
"""Seconds. A refresh asks one server, with timeouts of its own that are shorter."""


class ProcessLocks(Protocol):
    """Locks between processes, which end with the process that holds them."""

    def hold(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]: ...


class RefreshLocks:
    """The tasks of this process queue up among themselves, so that only one of them asks the others."""

    def __init__(self, process_locks: ProcessLocks) -> None:
        self._process_locks = process_locks
        self._queues: dict[str, _KeyQueue] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """Hold a key alone. Raises DatabaseUnavailable where another process holds it for too long."""
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
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


def create_refresh_locks(engines: Engines, data_dir: Path) -> RefreshLocks:
    """The locks that go with a kind of database."""
    if engines.kind == "sqlite":
        return RefreshLocks(FileLocks(data_dir / _LOCK_FOLDER_NAME))
    from toolyard.store.locks.advisory import AdvisoryLocks  # its driver is loaded only with that database

    return RefreshLocks(AdvisoryLocks(engines))
