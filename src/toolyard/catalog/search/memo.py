"""What a function gives for a word, kept for the next time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["BoundedMemo"]

_Value = TypeVar("_Value")


class BoundedMemo(dict[str, _Value]):
    """What a function gives, by word: worked out when it is asked for first, all forgotten at ``most`` words.

    A lookup costs less than in an ``lru_cache``, which brings its list up to date at each.
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
