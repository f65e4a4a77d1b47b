"""The search index over tools: built in memory, kept up to date server by server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from toolyard.catalog.search.fields import DocumentBuilder
from toolyard.catalog.search.fuzzy import FuzzyMatcher
from toolyard.catalog.search.index_view import IndexView
from toolyard.catalog.search.postings import Postings
from toolyard.catalog.search.query import parse_query
from toolyard.catalog.search.ranking import rank_documents
from toolyard.catalog.tool_listing import ToolListing
from toolyard.types.catalog import Catalogue
from toolyard.types.tool import Definition

__all__ = ["Hit", "SearchIndex"]

_MAX_CACHED_VIEWS = 16
_MAX_NAME_CHARS = 256
_EXACT_NAME_BONUS = 1.0
_REBUILD_MIN_REMOVED = 10_000


class Hit(NamedTuple):
    """A tool that was found, by its exposed name. ``score`` only compares hits of the same search."""

    name: str
    score: float


@dataclass(slots=True)
class _IndexedServer:
    """What is indexed of one server."""

    tools: dict[str, Definition]
    description: str


class SearchIndex:
    """Finds tools by words. For one thread: a search fills what it prepares as well.

    ``put`` and ``remove`` change one server's part and cost in proportion to it; ``follow`` does so for a
    whole roster. What an index finds depends on its tools alone, not on the way it came to them.
    """

    def __init__(self) -> None:
        self._document_builder = DocumentBuilder()
        self._indexed_servers: dict[str, _IndexedServer] = {}
        self._reset_index()

    def __len__(self) -> int:
        return len(self._number_by_name)

    def put(self, server_id: str, tools: Mapping[str, Definition], description: str = "") -> None:
        """Index a server's tools under their exposed names, in place of what was there of it.

        ``about`` is what the server says of itself. Only what differs is read again. A name that another
        server's tool had goes over to this one's.
        """
        shelf = self._indexed_servers.get(server_id)
        if shelf is not None and shelf.description != description:
            self.remove(server_id)
            shelf = None
        if shelf is None:
            shelf = self._indexed_servers[server_id] = _IndexedServer({}, description)
        new = [name for name, tool in tools.items() if not _is_same_definition(shelf.tools.get(name), tool)]
        gone = [name for name in shelf.tools if name not in tools]
        if not gone and not new:
            return
        for name in chain(gone, new):
            self._remove_tool(name)
        common = self._document_builder.weigh_server(server_id, description)
        for name in new:
            self._add_tool(server_id, name, tools[name], common)
        self._views.clear()
        self._rebuild_if_sparse()

    def remove(self, server_id: str) -> None:
        """Forget a server's tools; nothing happens where there are none."""
        shelf = self._indexed_servers.get(server_id)
        if shelf is None:
            return
        for name in list(shelf.tools):
            self._remove_tool(name)
        del self._indexed_servers[server_id]
        self._views.clear()

    def sync(self, listing: ToolListing) -> None:
        """Make this the index of a roster; a server that is as before costs next to nothing."""
        tools: dict[str, dict[str, Definition]] = {}
        for name, definition in listing.tools.items():
            tools.setdefault(definition.server_id, {})[name] = definition
        for server_id in self._indexed_servers.keys() - tools.keys():
            self.remove(server_id)
        for server_id, mine in tools.items():
            self.put(server_id, mine, _server_description(listing.catalogues.get(server_id)))
        self._postings.flush_pending()

    def search(self, query: str, limit: int = 10, *, allowed: Collection[str] | None = None) -> list[Hit]:
        """The best tools for a query, best first; equal ones by name. Never raises for what a query is.

        ``allowed`` are the exposed names that the caller may know of, None for all. The result is that of an
        index of only these. Pass the same frozenset again where there is one: it is prepared once.
        """
        if limit < 1:
            return []
        names = None if allowed is None else allowed if isinstance(allowed, frozenset) else frozenset(allowed)
        scores = rank_documents(self._view_for(names), parse_query(query), limit, self._name_by_number)
        exact = self._find_exact_match(query, names)
        if exact is not None:
            scores[exact] = scores.get(exact, 0.0) + _EXACT_NAME_BONUS
        names_of = self._name_by_number
        best = sorted([(-score, names_of[number]) for number, score in scores.items()])
        return [Hit(name, -score) for score, name in best[:limit]]

    def _find_exact_match(self, query: str, allowed: frozenset[str] | None) -> int | None:
        name = query[: 2 * _MAX_NAME_CHARS].strip()
        return self._number_by_name.get(name) if allowed is None or name in allowed else None

    def _view_for(self, names: frozenset[str] | None) -> IndexView:
        view = self._views.get(names)
        if view is None:
            numbers = None
            if names is not None:
                numbers = [self._number_by_name[name] for name in names if name in self._number_by_name]
            if len(self._views) >= _MAX_CACHED_VIEWS:
                self._views.pop(next(iter(self._views)))
            view = self._views[names] = IndexView(self._postings, numbers, self._fuzzy_matcher)
        return view

    def _add_tool(self, server_id: str, name: str, tool: Definition, common: Mapping[str, float]) -> None:
        number = self._postings.add(self._document_builder.build(tool, common))
        self._indexed_servers[server_id].tools[name] = tool
        self._name_by_number[number] = name
        self._number_by_name[name] = number
        self._server_by_name[name] = server_id

    def _remove_tool(self, name: str) -> None:
        number = self._number_by_name.pop(name, None)
        if number is None:
            return
        del self._indexed_servers[self._server_by_name.pop(name)].tools[name], self._name_by_number[number]
        self._postings.remove(number)

    def _rebuild_if_sparse(self) -> None:
        """Begin anew where most of what is kept stands for tools that are gone."""
        if self._postings.removed_count <= max(_REBUILD_MIN_REMOVED, 2 * len(self)):
            return
        shelves, self._indexed_servers = self._indexed_servers, {}
        self._reset_index()
        for server_id, shelf in shelves.items():
            self.put(server_id, shelf.tools, shelf.description)

    def _reset_index(self) -> None:
        self._postings = Postings()
        self._fuzzy_matcher = FuzzyMatcher(self._postings.terms)
        self._name_by_number: dict[int, str] = {}
        self._number_by_name: dict[str, int] = {}
        self._server_by_name: dict[str, str] = {}
        self._views: dict[frozenset[str] | None, IndexView] = {}


def _is_same_definition(known: Definition | None, tool: Definition) -> bool:
    return known is tool or known == tool


def _server_description(catalogue: Catalogue | None) -> str:
    if catalogue is None:
        return ""
    info = catalogue.listing.server_info
    said = (info.get("title"), info.get("description"), catalogue.listing.instructions)
    return "\n".join(text for text in said if isinstance(text, str))
