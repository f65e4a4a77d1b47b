from __future__ import annotations

from toolyard.concurrency.lru_cache import LruCache


def test_the_least_recently_stored_entry_is_evicted() -> None:
    cache = LruCache[str, int](2)
    cache["a"] = 1
    cache["b"] = 2
    cache["a"] = 3
    cache["c"] = 4
    assert dict(cache) == {"a": 3, "c": 4}


def test_reading_does_not_protect_an_entry() -> None:
    cache = LruCache[str, int](2)
    cache["a"] = 1
    cache["b"] = 2
    assert cache["a"] == cache.get("a") == 1
    cache["c"] = 3
    assert list(cache) == ["b", "c"]
