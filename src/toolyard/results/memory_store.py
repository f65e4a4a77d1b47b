"""Result store in memory, for the library and the command line."""

from __future__ import annotations

from collections import OrderedDict

from toolyard.results.result_store import StoredResult

__all__ = ["MemoryResultStore"]


class MemoryResultStore:
    """Stores the newest results up to a total length of ``max_chars``, and always the newest one."""

    def __init__(self, max_chars: int = 32_000_000) -> None:
        self._max_chars = max_chars
        self._results: OrderedDict[str, StoredResult] = OrderedDict()
        self._total_chars = 0

    async def save(self, handle: str, result: StoredResult) -> None:
        """Store a result and remove the oldest ones if the limit is exceeded."""
        if handle in self._results:
            self._results.move_to_end(handle)
            return
        self._results[handle] = result
        self._total_chars += len(result.body)
        while self._total_chars > self._max_chars and len(self._results) > 1:
            _, oldest = self._results.popitem(last=False)
            self._total_chars -= len(oldest.body)

    async def read(self, handle: str) -> StoredResult | None:
        """Return the result with a handle; None if there is none or it was removed."""
        return self._results.get(handle)

    async def has_any(self) -> bool:
        """Return True if the store has any result."""
        return bool(self._results)
