"""Handles in memory, for the library and the command line."""

from __future__ import annotations

from collections import OrderedDict

from toolyard.results.result_store import StoredResult

__all__ = ["MemoryResultStore"]


class MemoryResultStore:
    """Keeps the newest texts and bytes, together at most ``characters`` long; the newest one always."""

    def __init__(self, max_chars: int = 32_000_000) -> None:
        self._max_chars = max_chars
        self._results: OrderedDict[str, StoredResult] = OrderedDict()
        self._total_chars = 0

    async def save(self, handle: str, result: StoredResult) -> None:
        """Keep it; the oldest ones make room for it."""
        if handle in self._results:
            self._results.move_to_end(handle)
            return
        self._results[handle] = result
        self._total_chars += len(result.body)
        while self._total_chars > self._max_chars and len(self._results) > 1:
            _, oldest = self._results.popitem(last=False)
            self._total_chars -= len(oldest.body)

    async def read(self, handle: str) -> StoredResult | None:
        """What is kept under the handle; None where nothing is, or no longer."""
        return self._results.get(handle)

    async def has_any(self) -> bool:
        """Whether anything can be read."""
        return bool(self._results)
