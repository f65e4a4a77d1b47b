"""Search for one caller: only what this caller may see is ranked at all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.catalog.search import Hit, SearchIndex
from toolyard.catalog.tool_listing import ToolListing
from toolyard.clients.call_path import CallPath
from toolyard.types.call import Caller
from toolyard.types.tool import Definition

__all__ = ["CallerSearch"]

_MAX_INDEXES = 16
"""Indexes that stay in memory. Who comes back after that waits while theirs is made again."""
_MAX_CACHED_NAME_SETS = 64


@dataclass(slots=True)
class _PrincipalIndex:
    index: SearchIndex = field(default_factory=SearchIndex)
    tools: Mapping[str, Definition] | None = None


class CallerSearch:
    """Keeps a search index for each principal, and brings it up to date when it is used."""

    def __init__(self, call_path: CallPath) -> None:
        self._call_path = call_path
        self._indexes: OrderedDict[str, _PrincipalIndex] = OrderedDict()
        self._visible_names_cache: OrderedDict[Caller, tuple[Mapping[str, Definition], frozenset[str]]] = (
            OrderedDict()
        )

    def search(self, listing: ToolListing, query: str, caller: Caller, limit: int) -> list[Hit]:
        """The best tools for a query among those that this caller gets to see, best first."""
        kept = self._indexes.get(caller.principal.id)
        if kept is None:
            kept = self._indexes[caller.principal.id] = _PrincipalIndex()
        self._indexes.move_to_end(caller.principal.id)
        while len(self._indexes) > _MAX_INDEXES:
            self._indexes.popitem(last=False)
        if kept.tools is not listing.tools:
            kept.index.sync(listing)
            kept.tools = listing.tools
        return kept.index.search(query, limit, allowed=self._visible_names(listing, caller))

    def forget_principal(self, principal_id: str) -> None:
        """Forget a principal's index."""
        self._indexes.pop(principal_id, None)
        for caller in [each for each in self._visible_names_cache if each.principal.id == principal_id]:
            del self._visible_names_cache[caller]

    def _visible_names(self, listing: ToolListing, caller: Caller) -> frozenset[str] | None:
        """The names that the caller may know of, the same object for as long as they are the same."""
        shown = self._call_path.shown(listing, caller)
        if len(shown) == len(listing.tools):
            return None
        before = self._visible_names_cache.get(caller)
        if before is None or before[0] is not shown:
            before = self._visible_names_cache[caller] = (shown, frozenset(shown))
        self._visible_names_cache.move_to_end(caller)
        while len(self._visible_names_cache) > _MAX_CACHED_NAME_SETS:
            self._visible_names_cache.popitem(last=False)
        return before[1]
