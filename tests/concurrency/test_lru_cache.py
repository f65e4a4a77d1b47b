from __future__ import annotations

from toolyard.concurrency.lru_cache import LruCache


def test_the_least_recently_used_entry_is_evicted() -> None:
    cache = LruCache[str, int](2)
    cache["a"] = 1
    cache["b"] = 2
    cache["a"] = 3
    cache["c"] = 4
    assert dict(cache) == {"a": 3, "c": 4}
    assert (cache.get("a"), cache.get("b"), cache.get("b", 5)) == (3, None, 5)
    cache["d"] = 6
    assert dict(cache) == {"a": 3, "d": 6}


def test_a_loop_over_the_cache_can_read_it_and_protects_nothing() -> None:
    cache = LruCache[str, int](2)
    cache["a"] = 1
    cache["b"] = 2
    assert [cache[key] for key in cache if key in cache] == list(cache.values()) == [1, 2]
    cache["c"] = 3
    assert list(cache) == ["b", "c"]
