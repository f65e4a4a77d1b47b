"""Search for one caller: only what this caller may see is ranked at all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from toolyard.catalog.search import Hit, SearchIndex
from toolyard.catalog.tool_listing import Roster
from toolyard.clients.call_path import CallPath
from toolyard.types.call import Caller
from toolyard.types.tool import Definition

__all__ = ["Finder"]

_PRINCIPALS = 16
"""Indexes that stay in memory. Who comes back after that waits while theirs is made again."""
_CALLERS = 64


@dataclass(slots=True)
class _Kept:
    index: SearchIndex = field(default_factory=SearchIndex)
    tools: Mapping[str, Definition] | None = None


class Finder:
    """Keeps a search index for each principal, and brings it up to date when it is used."""

    def __init__(self, calls: CallPath) -> None:
        self._calls = calls
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._allowed: OrderedDict[Caller, tuple[Mapping[str, Definition], frozenset[str]]] = OrderedDict()

    def search(self, roster: Roster, query: str, caller: Caller, limit: int) -> list[Hit]:
        """The best tools for a query among those that this caller gets to see, best first."""
        kept = self._kept.get(caller.principal.id)
        if kept is None:
            kept = self._kept[caller.principal.id] = _Kept()
        self._kept.move_to_end(caller.principal.id)
        while len(self._kept) > _PRINCIPALS:
            self._kept.popitem(last=False)
        if kept.tools is not roster.tools:
            kept.index.follow(roster)
            kept.tools = roster.tools
        return kept.index.search(query, limit, allowed=self._names(roster, caller))

    def leave(self, principal_id: str) -> None:
        """Forget a principal's index."""
        self._kept.pop(principal_id, None)
        for caller in [each for each in self._allowed if each.principal.id == principal_id]:
            del self._allowed[caller]

    def _names(self, roster: Roster, caller: Caller) -> frozenset[str] | None:
        """The names that the caller may know of, the same object for as long as they are the same."""
        shown = self._calls.shown(roster, caller)
        if len(shown) == len(roster.tools):
            return None
        before = self._allowed.get(caller)
        if before is None or before[0] is not shown:
            before = self._allowed[caller] = (shown, frozenset(shown))
        self._allowed.move_to_end(caller)
        while len(self._allowed) > _CALLERS:
            self._allowed.popitem(last=False)
        return before[1]
