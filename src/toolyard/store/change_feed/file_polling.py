"""That another process wrote to the SQLite file: it does not say what, so whoever listens looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolyard.store.sql.executor import Workshop

__all__ = ["FileEar"]

_EVERY = 0.2
"""Seconds between two looks."""


class FileEar:
    """An Ear, for as long as somebody listens. It asks the connection that writes for us: there the version
    of the data changes with the writes of others, and not with our own."""

    def __init__(self, workshop: Workshop, wanted: Callable[[], bool]) -> None:
        self._workshop = workshop
        self._wanted = wanted

    async def hear(self, said: Callable[[str], None], again: Callable[[], None]) -> None:
        """See Ear."""
        seen: object = None
        while self._wanted():
            now = await self._workshop.file_version()
            if now != seen:
                again()
            seen = now
            await asyncio.sleep(_EVERY)
