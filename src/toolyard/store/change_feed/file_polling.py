"""That another process wrote to the SQLite file: it does not say what, so whoever listens looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolyard.store.sql.executor import DatabaseExecutor

__all__ = ["SqliteChangeListener"]

_POLL_INTERVAL_SECONDS = 0.2
"""Seconds between two looks."""


class SqliteChangeListener:
    """An Ear, for as long as somebody listens. It asks the connection that writes for us: there the version
    of the data changes with the writes of others, and not with our own."""

    def __init__(self, executor: DatabaseExecutor, has_listeners: Callable[[], bool]) -> None:
        self._executor = executor
        self._has_listeners = has_listeners

    async def run(self, on_message: Callable[[str], None], on_resync: Callable[[], None]) -> None:
        """See Ear."""
        seen: object = None
        while self._has_listeners():
            now = await self._executor.file_version()
            if now != seen:
                on_resync()
            seen = now
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)
