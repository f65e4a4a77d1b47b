from __future__ import annotations

from toolyard.catalog.cache import MAX_TTL_SECONDS, effective_ttl


def test_an_operators_zero_beats_the_hint_and_a_hint_beats_the_rest() -> None:
    assert effective_ttl(0.0, 300.0) == 0.0
    assert effective_ttl(60.0, None) == 60.0
    assert effective_ttl(60.0, 300.0) == 300.0
    assert effective_ttl(60.0, 0.0) == 0.0
    assert effective_ttl(60.0, 1e12) == MAX_TTL_SECONDS
