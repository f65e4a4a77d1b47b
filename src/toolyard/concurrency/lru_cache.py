"""Cache bounded by its number of entries."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar, overload

__all__ = ["LruCache"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")


class LruCache(OrderedDict[_K, _V]):
    """A dict of at most ``max_entries`` entries, without the least recently used ones.

    Storing an entry and ``get`` mark it as used. Subscription, ``peek``, ``in`` and iteration do not, so that
    a loop over the cache can read it.
    """

    peek = OrderedDict[_K, _V].get
    """Return the entry or the default, as fast as a dict. For entries that are soon stored or got again."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    @overload
    def get(self, key: _K, default: None = None, /) -> _V | None: ...
    @overload
    def get(self, key: _K, default: _V, /) -> _V: ...
    @overload
    def get(self, key: _K, default: _T, /) -> _V | _T: ...
    def get(self, key: _K, default: Any = None, /) -> Any:
        """Return the entry and mark it as used, or return the default."""
        try:
            self.move_to_end(key)
        except KeyError:
            return default
        return self[key]

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_entries:
            self.popitem(last=False)
