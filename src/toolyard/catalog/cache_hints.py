"""Cache hints of servers: how long a listing may be cached, and for whom."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from toolyard.types.catalog import CacheScope
from toolyard.types.tool import JsonObject

__all__ = ["MAX_TTL_SECONDS", "CacheHints", "effective_ttl"]

MAX_TTL_SECONDS = 86_400.0
"""Maximum ttl that a server's hint can set: one day, in seconds."""


@dataclass(frozen=True, slots=True)
class CacheHints:
    """Cache hints of one result. ``ttl`` is in seconds. A field is None if the server sent no valid value."""

    ttl: float | None = None
    scope: CacheScope | None = None

    @classmethod
    def from_result(cls, result: JsonObject) -> CacheHints:
        """Parse ``ttlMs`` and ``cacheScope`` of a result. A negative time counts as zero."""
        return cls(_parse_ttl_seconds(result.get("ttlMs")), _parse_scope(result.get("cacheScope")))

    @classmethod
    def combine(cls, hints: Iterable[CacheHints]) -> CacheHints:
        """Return the hints for a listing of several pages: the shortest ttl, public only if all pages are."""
        pages = list(hints)
        times = [hint.ttl for hint in pages if hint.ttl is not None]
        scopes = {hint.scope for hint in pages}
        scope = None
        if scopes == {CacheScope.PUBLIC}:
            scope = CacheScope.PUBLIC
        elif CacheScope.PRIVATE in scopes:
            scope = CacheScope.PRIVATE
        return cls(min(times, default=None), scope)


def effective_ttl(configured: float, hinted: float | None) -> float:
    """Return the seconds for which a listing is fresh.

    A configured 0 overrides the server's hint; otherwise the hint, if any, overrides the configured value.
    """
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
