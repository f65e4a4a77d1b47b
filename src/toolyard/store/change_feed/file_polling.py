"""Detection of writes to the SQLite file by other processes, by polling.

SQLite has no notifications between processes. ``PRAGMA data_version`` tells that the file changed but not
which rows, so every change makes all listeners check everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolyard.store.sql.executor import DatabaseExecutor

__all__ = ["SqliteChangeListener"]

_POLL_INTERVAL_SECONDS = 0.2
"""Interval between two checks of the file."""


class SqliteChangeListener:
    """ChangeListener for SQLite. Runs while there are listeners.

    It reads the version on the writer's connection, where it changes with commits of other connections but
    not with our own.
    """

    def __init__(self, executor: DatabaseExecutor, has_listeners: Callable[[], bool]) -> None:
        self._executor = executor
        self._has_listeners = has_listeners

    async def run(self, on_message: Callable[[str], None], on_resync: Callable[[], None]) -> None:
        last_version: object = None
        while self._has_listeners():
            version = await self._executor.file_version()
            if version != last_version:
                on_resync()
            last_version = version
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
