"""Memoization of pure functions of one string."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["BoundedMemo"]

_Value = TypeVar("_Value")


class BoundedMemo(dict[str, _Value]):
    """Cache of a function's results by argument, cleared completely at ``max_entries`` entries.

    A lookup is cheaper than with ``functools.lru_cache``, which reorders its entries on every hit.
    """

    def __init__(self, compute: Callable[[str], _Value], max_entries: int) -> None:
        super().__init__()
        self._compute = compute
        self._max_entries = max_entries

    def __missing__(self, word: str) -> _Value:
        if len(self) >= self._max_entries:
            self.clear()
        value = self[word] = self._compute(word)
        return value
