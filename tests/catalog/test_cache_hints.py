from __future__ import annotations

from typing import Any

import pytest

from toolyard.catalog.cache import MAX_TTL_SECONDS, CacheHints, effective_ttl
from toolyard.types.tool import CacheScope


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (300_000, 300.0),
        (1, 0.001),
        (0, 0.0),
        (-5, 0.0),
        (1500.5, 1.5005),
        (10**400, MAX_TTL_SECONDS),
        (True, None),
        ("60000", None),
        (None, None),
        (float("inf"), None),
        (float("nan"), None),
        ([], None),
    ],
)
def test_a_time_in_milliseconds_is_read_and_nonsense_is_none(value: Any, seconds: float | None) -> None:
    assert CacheHints.from_result({"ttlMs": value}).ttl == seconds


@pytest.mark.parametrize(
    ("value", "scope"),
    [
        ("public", CacheScope.PUBLIC),
        ("private", CacheScope.PRIVATE),
        ("PUBLIC", None),
        (None, None),
        ({}, None),
    ],
)
def test_the_scope_is_read_and_nonsense_is_none(value: Any, scope: CacheScope | None) -> None:
    assert CacheHints.from_result({"cacheScope": value}).scope is scope


def test_pages_together_have_the_shortest_time() -> None:
    assert CacheHints.combine([CacheHints(60.0), CacheHints(None), CacheHints(5.0)]).ttl == 5.0
    assert CacheHints.combine([CacheHints(None)]).ttl is None
    assert CacheHints.combine([]) == CacheHints()


def test_pages_together_are_public_only_if_all_are() -> None:
    public, private, silent = (
        CacheHints(scope=CacheScope.PUBLIC),
        CacheHints(scope=CacheScope.PRIVATE),
        CacheHints(),
    )
    assert CacheHints.combine([public, public]).scope is CacheScope.PUBLIC
    assert CacheHints.combine([public, private]).scope is CacheScope.PRIVATE
    assert CacheHints.combine([public, silent]).scope is None


def test_an_operators_zero_beats_the_hint_and_a_hint_beats_the_rest() -> None:
    assert effective_ttl(0.0, 300.0) == 0.0
    assert effective_ttl(60.0, None) == 60.0
    assert effective_ttl(60.0, 300.0) == 300.0
    assert effective_ttl(60.0, 0.0) == 0.0
    assert effective_ttl(60.0, 1e12) == MAX_TTL_SECONDS
