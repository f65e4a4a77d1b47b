"""Handles in memory, for the library and the command line."""

from __future__ import annotations

from collections import OrderedDict

from toolyard.results.result_store import Kept

__all__ = ["MemoryHandles"]


class MemoryHandles:
    """Keeps the newest texts and bytes, together at most ``characters`` long; the newest one always."""

    def __init__(self, characters: int = 32_000_000) -> None:
        self._room = characters
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._length = 0

    async def keep(self, handle: str, kept: Kept) -> None:
        """Keep it; the oldest ones make room for it."""
        if handle in self._kept:
            self._kept.move_to_end(handle)
            return
        self._kept[handle] = kept
        self._length += len(kept.body)
        while self._length > self._room and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._length -= len(oldest.body)

    async def read(self, handle: str) -> Kept | None:
        """What is kept under the handle; None where nothing is, or no longer."""
        return self._kept.get(handle)

    async def has_any(self) -> bool:
        """Whether anything can be read."""
        return bool(self._kept)
