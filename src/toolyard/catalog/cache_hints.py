"""How long a listing may be kept and for whom: the server's hints, beside what the operator set."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.types.catalog import CacheScope
from toolyard.types.tool import JsonObject

__all__ = ["MAX_TTL_SECONDS", "CacheHints", "effective_ttl"]

MAX_TTL_SECONDS = 86_400.0
"""Seconds. No hint keeps a listing longer than a day."""


@dataclass(frozen=True, slots=True)
class CacheHints:
    """The cache hints of a result. ``ttl`` is in seconds; None where the server says nothing usable."""

    ttl: float | None = None
    scope: CacheScope | None = None

    @classmethod
    def from_result(cls, result: JsonObject) -> CacheHints:
        """Read ``ttlMs`` and ``cacheScope`` from one result. A negative time counts as zero."""
        return cls(_parse_ttl_seconds(result.get("ttlMs")), _parse_scope(result.get("cacheScope")))

    @classmethod
    def combine(cls, hints: Iterable[CacheHints]) -> CacheHints:
        """The hints for a listing made of several results: the shortest time, and public only if all are."""
        gathered = list(hints)
        times = [hint.ttl for hint in gathered if hint.ttl is not None]
        scopes = {hint.scope for hint in gathered}
        scope = None
        if scopes == {CacheScope.PUBLIC}:
            scope = CacheScope.PUBLIC
        elif CacheScope.PRIVATE in scopes:
            scope = CacheScope.PRIVATE
        return cls(min(times, default=None), scope)


def effective_ttl(configured: float, hinted: float | None) -> float:
    """Seconds that a listing counts as fresh. An operator's 0 beats the hint, a hint beats the rest."""
    if configured <= 0:
        return 0.0
    return configured if hinted is None else min(max(hinted, 0.0), MAX_TTL_SECONDS)


def _parse_ttl_seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return min(max(value, 0), int(MAX_TTL_SECONDS) * 1000) / 1000


def _parse_scope(value: object) -> CacheScope | None:
    if value == CacheScope.PUBLIC.value:
        return CacheScope.PUBLIC
    return CacheScope.PRIVATE if value == CacheScope.PRIVATE.value else None
