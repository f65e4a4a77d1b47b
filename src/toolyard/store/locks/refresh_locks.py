"""Who may refresh a sign-in: one at a time, among tasks, processes and replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from toolyard.store.locks.file_locks import FileLocks
from toolyard.store.sql.dialects import Engines

__all__ = ["Locks", "locks_for"]

_FOLDER = "locks"
_LONGEST_WAIT = 120.0
"""Seconds. A refresh asks one server, with timeouts of its own that are shorter."""


class Between(Protocol):
    """Locks between processes, which end with the process that holds them."""

    def holding(self, key: str, seconds: float) -> AbstractAsyncContextManager[None]: ...


class Locks:
    """The tasks of this process queue up among themselves, so that only one of them asks the others."""

    def __init__(self, between: Between) -> None:
        self._between = between
        self._here: dict[str, _Queue] = {}

    @asynccontextmanager
    async def holding(self, key: str) -> AsyncGenerator[None]:
        """Hold a key alone. Raises DatabaseUnavailable where another process holds it for too long."""
        queue = self._here.setdefault(key, _Queue())
        queue.length += 1
        try:
            async with queue.lock, self._between.holding(key, _LONGEST_WAIT):
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._here[key]


class _Queue:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


def locks_for(engines: Engines, data_dir: Path) -> Locks:
    """The locks that go with a kind of database."""
    if engines.kind == "sqlite":
        return Locks(FileLocks(data_dir / _FOLDER))
    from toolyard.store.locks.advisory import AdvisoryLocks  # its driver is loaded only with that database

    return Locks(AdvisoryLocks(engines))
