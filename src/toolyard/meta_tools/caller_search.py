"""Search among the tools visible to a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from toolyard.catalog.search import Hit, SearchIndex
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import run_in_locked_thread
from toolyard.types.call import Caller
from toolyard.types.tool import Definition

__all__ = ["CallerSearch"]

_MAX_INDEXES = 16
"""Maximum number of indexes in memory. The least recently used one is dropped, and rebuilt when needed."""
_MAX_CACHED_NAME_SETS = 64


@dataclass(slots=True)
class _PrincipalIndex:
    index: SearchIndex = field(default_factory=SearchIndex)
    tools: Mapping[str, Definition] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a thread uses the index."""

    def update_and_search(
        self, listing: ToolListing, query: str, limit: int, allowed: frozenset[str] | None
    ) -> list[Hit]:
        if self.tools is not listing.tools:
            self.index.sync(listing)
            self.tools = listing.tools
        return self.index.search(query, limit, allowed=allowed)


class CallerSearch:
    """Search index per principal, brought up to date at each search.

    Hidden tools are excluded before ranking, so that ranks reveal nothing about them.
    """

    def __init__(self, call_path: CallPath) -> None:
        self._call_path = call_path
        self._indexes: LruCache[str, _PrincipalIndex] = LruCache(_MAX_INDEXES)
        self._visible_names_cache: LruCache[Caller, tuple[Mapping[str, Definition], frozenset[str]]] = (
            LruCache(_MAX_CACHED_NAME_SETS)
        )

    async def search(self, listing: ToolListing, query: str, caller: Caller, limit: int) -> list[Hit]:
        """Return the best tools for a query among those visible to the caller, best first."""
        entry = self._indexes.get(caller.principal.id) or _PrincipalIndex()
        self._indexes[caller.principal.id] = entry
        allowed = self._visible_names(listing, caller)
        # In a thread, because to index even a few tools takes seconds if their texts are long.
        work = partial(entry.update_and_search, listing, query, limit, allowed)
        return await run_in_locked_thread(entry.lock, work)

    def forget_principal(self, principal_id: str) -> None:
        """Drop the index and the cached names of a principal."""
        self._indexes.pop(principal_id, None)
        for caller in [each for each in self._visible_names_cache if each.principal.id == principal_id]:
            del self._visible_names_cache[caller]

    def _visible_names(self, listing: ToolListing, caller: Caller) -> frozenset[str] | None:
        """Return the names visible to the caller, None if all are.

        Returns the same object as long as the names are unchanged, since the index caches views by it.
        """
        shown = self._call_path.visible_tools(listing, caller)
        if len(shown) == len(listing.tools):
            return None
        cached = self._visible_names_cache.get(caller)
        if cached is None or cached[0] is not shown:
            cached = (shown, frozenset(shown))
        self._visible_names_cache[caller] = cached
        return cached[1]
