"""The search index over tools: built in memory, kept up to date server by server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from toolyard.catalog.search.fields import Reader
from toolyard.catalog.search.fuzzy import Nearby
from toolyard.catalog.search.index_view import View
from toolyard.catalog.search.postings import Postings
from toolyard.catalog.search.query import ask
from toolyard.catalog.search.ranking import rank
from toolyard.catalog.tool_listing import Roster
from toolyard.types.catalog import Catalogue
from toolyard.types.tool import Definition

__all__ = ["Hit", "SearchIndex"]

_VIEWS = 16
_LONGEST_NAME = 256
_EXACT = 1.0
_WASTE = 10_000


class Hit(NamedTuple):
    """A tool that was found, by its exposed name. ``score`` only compares hits of the same search."""

    name: str
    score: float


@dataclass(slots=True)
class _Shelf:
    """What is indexed of one server."""

    tools: dict[str, Definition]
    about: str


class SearchIndex:
    """Finds tools by words. For one thread: a search fills what it prepares as well.

    ``put`` and ``remove`` change one server's part and cost in proportion to it; ``follow`` does so for a
    whole roster. What an index finds depends on its tools alone, not on the way it came to them.
    """

    def __init__(self) -> None:
        self._reader = Reader()
        self._shelves: dict[str, _Shelf] = {}
        self._clear()

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, server_id: str, tools: Mapping[str, Definition], about: str = "") -> None:
        """Index a server's tools under their exposed names, in place of what was there of it.

        ``about`` is what the server says of itself. Only what differs is read again. A name that another
        server's tool had goes over to this one's.
        """
        shelf = self._shelves.get(server_id)
        if shelf is not None and shelf.about != about:
            self.remove(server_id)
            shelf = None
        if shelf is None:
            shelf = self._shelves[server_id] = _Shelf({}, about)
        new = [name for name, tool in tools.items() if not _same(shelf.tools.get(name), tool)]
        gone = [name for name in shelf.tools if name not in tools]
        if not gone and not new:
            return
        for name in chain(gone, new):
            self._drop(name)
        common = self._reader.about(server_id, about)
        for name in new:
            self._add(server_id, name, tools[name], common)
        self._views.clear()
        self._tidy()

    def remove(self, server_id: str) -> None:
        """Forget a server's tools; nothing happens where there are none."""
        shelf = self._shelves.get(server_id)
        if shelf is None:
            return
        for name in list(shelf.tools):
            self._drop(name)
        del self._shelves[server_id]
        self._views.clear()

    def follow(self, roster: Roster) -> None:
        """Make this the index of a roster; a server that is as before costs next to nothing."""
        tools: dict[str, dict[str, Definition]] = {}
        for name, definition in roster.tools.items():
            tools.setdefault(definition.server_id, {})[name] = definition
        for server_id in self._shelves.keys() - tools.keys():
            self.remove(server_id)
        for server_id, mine in tools.items():
            self.put(server_id, mine, _about(roster.catalogues.get(server_id)))
        self._postings.settle()

    def search(self, query: str, limit: int = 10, *, allowed: Collection[str] | None = None) -> list[Hit]:
        """The best tools for a query, best first; equal ones by name. Never raises for what a query is.

        ``allowed`` are the exposed names that the caller may know of, None for all. The result is that of an
        index of only these. Pass the same frozenset again where there is one: it is prepared once.
        """
        if limit < 1:
            return []
        names = None if allowed is None else allowed if isinstance(allowed, frozenset) else frozenset(allowed)
        scores = rank(self._view(names), ask(query), limit, self._names)
        exact = self._exact(query, names)
        if exact is not None:
            scores[exact] = scores.get(exact, 0.0) + _EXACT
        names_of = self._names
        best = sorted([(-score, names_of[number]) for number, score in scores.items()])
        return [Hit(name, -score) for score, name in best[:limit]]

    def _exact(self, query: str, allowed: frozenset[str] | None) -> int | None:
        name = query[: 2 * _LONGEST_NAME].strip()
        return self._numbers.get(name) if allowed is None or name in allowed else None

    def _view(self, names: frozenset[str] | None) -> View:
        view = self._views.get(names)
        if view is None:
            numbers = None
            if names is not None:
                numbers = [self._numbers[name] for name in names if name in self._numbers]
            if len(self._views) >= _VIEWS:
                self._views.pop(next(iter(self._views)))
            view = self._views[names] = View(self._postings, numbers, self._nearby)
        return view

    def _add(self, server_id: str, name: str, tool: Definition, common: Mapping[str, float]) -> None:
        number = self._postings.add(self._reader.document(tool, common))
        self._shelves[server_id].tools[name] = tool
        self._names[number] = name
        self._numbers[name] = number
        self._servers[name] = server_id

    def _drop(self, name: str) -> None:
        number = self._numbers.pop(name, None)
        if number is None:
            return
        del self._shelves[self._servers.pop(name)].tools[name], self._names[number]
        self._postings.remove(number)

    def _tidy(self) -> None:
        """Begin anew where most of what is kept stands for tools that are gone."""
        if self._postings.wasted <= max(_WASTE, 2 * len(self)):
            return
        shelves, self._shelves = self._shelves, {}
        self._clear()
        for server_id, shelf in shelves.items():
            self.put(server_id, shelf.tools, shelf.about)

    def _clear(self) -> None:
        self._postings = Postings()
        self._nearby = Nearby(self._postings.terms)
        self._names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._servers: dict[str, str] = {}
        self._views: dict[frozenset[str] | None, View] = {}


def _same(known: Definition | None, tool: Definition) -> bool:
    return known is tool or known == tool


def _about(catalogue: Catalogue | None) -> str:
    if catalogue is None:
        return ""
    info = catalogue.listing.server_info
    said = (info.get("title"), info.get("description"), catalogue.listing.instructions)
    return "\n".join(text for text in said if isinstance(text, str))
