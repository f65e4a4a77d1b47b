"""Cache bounded by its number of entries."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["LruCache"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class LruCache(OrderedDict[_K, _V]):
    """A dict of at most ``max_entries`` entries, without the least recently stored ones.

    Storing an entry marks it as used, reading does not: a lookup costs no more than in a dict, and a user for
    whom reads count stores the entry again.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_entries:
            self.popitem(last=False)
