"""In-memory search index over the tools of all servers, updated one server at a time.

It also makes the one-line summaries of tool descriptions in search results and lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from toolyard.catalog.search.documents import DocumentBuilder
from toolyard.catalog.search.fuzzy import FuzzyMatcher
from toolyard.catalog.search.index_view import IndexView, rank_documents
from toolyard.catalog.search.postings import MAX_LISTED_DOCUMENTS, Postings
from toolyard.catalog.search.query import parse_query
from toolyard.catalog.tool_listing import ToolListing
from toolyard.concurrency.lru_cache import LruCache
from toolyard.types.tool import Catalogue, Definition

__all__ = ["Hit", "SearchIndex", "summarize_description"]


_MAX_CACHED_VIEWS = 16
_MAX_NAME_CHARS = 256
_EXACT_NAME_BONUS = 1.0
_REBUILD_MIN_REMOVED = 10_000
"""Number of unused document numbers below which the index is never rebuilt."""
_MAX_SERVER_TERMS = 100_000
"""Number of terms that one server may add to an index. Thousands of tools in one language have fewer."""


class Hit(NamedTuple):
    """Search result: a tool's exposed name. ``score`` is comparable only within the same search."""

    name: str
    score: float


@dataclass(slots=True)
class _IndexedServer:
    """Tools of one server as they are indexed, by exposed name, and the server's description."""

    tools: dict[str, Definition]
    description: str


class SearchIndex:
    """Full-text index of tools. Not thread-safe: searching fills caches too.

    ``put`` and ``remove`` replace or drop one server's tools at a cost proportional to the change; ``sync``
    does so for a whole listing. Results depend only on the indexed tools, not on the order of updates.
    """

    def __init__(
        self,
        max_listed_documents: int = MAX_LISTED_DOCUMENTS,
        *,
        max_server_terms: int = _MAX_SERVER_TERMS,
    ) -> None:
        """``max_listed_documents`` is that of ``Posting``.

        A server that has added ``max_server_terms`` terms adds no others: its further tools are found by
        their exact name and by known terms. Otherwise texts made for it would fill the memory.
        """
        self._max_listed_documents = max_listed_documents
        self._max_server_terms = max_server_terms
        self._document_builder = DocumentBuilder()
        self._indexed_servers: dict[str, _IndexedServer] = {}
        self._reset_index()

    def __len__(self) -> int:
        return len(self._number_by_name)

    @property
    def removed_count(self) -> int:
        """Number of removed tools that still take up space."""
        return self._postings.removed_count

    @property
    def term_count(self) -> int:
        """Number of different terms in memory, including those of removed tools."""
        return len(self._postings.terms)

    def put(self, server_id: str, tools: Mapping[str, Definition], description: str = "") -> None:
        """Index a server's tools under their exposed names, replacing the tools indexed for it before.

        ``description`` is the server's own title, description and instructions. Only changed definitions are
        tokenized again. An exposed name that belonged to another server's tool is reassigned to this one.
        """
        server = self._indexed_servers.get(server_id)
        # The description is part of every document of the server.
        if server is not None and server.description != description:
            self.remove(server_id)
            server = None
        if server is None:
            server = self._indexed_servers[server_id] = _IndexedServer({}, description)
        known = server.tools
        # Most definitions are the same objects as before, and comparing those would take longer.
        changed = [
            name for name, tool in tools.items() if known.get(name) is not tool and known.get(name) != tool
        ]
        removed = [name for name in server.tools if name not in tools]
        if not removed and not changed:
            return
        for name in chain(removed, changed):
            self._remove_tool(name)
        server_weights = self._document_builder.build_server_weights(server_id, description)
        for name in changed:
            self._add_tool(server_id, name, tools[name], server_weights)
        self._views.clear()
        self._rebuild_if_sparse()

    def remove(self, server_id: str) -> None:
        """Remove a server's tools; do nothing if there are none."""
        server = self._indexed_servers.get(server_id)
        if server is None:
            return
        for name in list(server.tools):
            self._remove_tool(name)
        del self._indexed_servers[server_id]
        self._views.clear()

    def sync(self, listing: ToolListing) -> None:
        """Make the index match ``listing``. Unchanged servers cost next to nothing."""
        tools: dict[str, dict[str, Definition]] = {}
        for name, definition in listing.tools.items():
            tools.setdefault(definition.server_id, {})[name] = definition
        for server_id in self._indexed_servers.keys() - tools.keys():
            self.remove(server_id)
        for server_id, server_tools in tools.items():
            self.put(server_id, server_tools, _server_description(listing.catalogues.get(server_id)))
        self._postings.flush_pending()

    def search(self, query: str, limit: int = 10, *, allowed: Collection[str] | None = None) -> list[Hit]:
        """Return the best tools for a query, best first, ties ordered by name. Accepts any string.

        ``allowed`` restricts the search to these exposed names, None allows all. The result is the same as
        that of an index of only these tools, so that ranks reveal nothing about hidden tools. Views are
        cached per frozenset; pass the same object again where possible.
        """
        if limit < 1:
            return []
        names = None if allowed is None else allowed if isinstance(allowed, frozenset) else frozenset(allowed)
        scores = rank_documents(self._view_for(names), parse_query(query), limit, self._name_by_number)
        # A query that is a tool's exact name finds that tool first, whatever its words score.
        name = query[: 2 * _MAX_NAME_CHARS].strip()
        exact = self._number_by_name.get(name) if names is None or name in names else None
        if exact is not None:
            scores[exact] = max(scores.values(), default=0.0) + _EXACT_NAME_BONUS
        names_of = self._name_by_number
        best = sorted([(-score, names_of[number]) for number, score in scores.items()])
        return [Hit(name, -score) for score, name in best[:limit]]

    def _view_for(self, names: frozenset[str] | None) -> IndexView:
        view = self._views.get(names)
        if view is None:
            numbers = None
            if names is not None:
                numbers = [self._number_by_name[name] for name in names if name in self._number_by_name]
            view = self._views[names] = IndexView(self._postings, numbers, self._fuzzy_matcher)
        return view

    def _add_tool(self, server_id: str, name: str, tool: Definition, common: Mapping[str, float]) -> None:
        document, count = self._document_builder.build(tool, common), len(self._postings.terms)
        if self._added_terms[server_id] >= self._max_server_terms:
            document = self._postings.without_new_terms(document)
        number = self._postings.add(document)
        self._added_terms[server_id] += len(self._postings.terms) - count
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
        """Rebuild the index if most document numbers are unused.

        Document numbers are never reused, so after many updates the bitsets consist mostly of zeros.
        """
        if self._postings.removed_count <= max(_REBUILD_MIN_REMOVED, 2 * len(self)):
            return
        servers, self._indexed_servers = self._indexed_servers, {}
        self._reset_index()
        for server_id, server in servers.items():
            self.put(server_id, server.tools, server.description)

    def _reset_index(self) -> None:
        self._postings = Postings(self._max_listed_documents)
        self._fuzzy_matcher = FuzzyMatcher(self._postings.terms)
        self._name_by_number: dict[int, str] = {}
        self._number_by_name: dict[str, int] = {}
        self._server_by_name: dict[str, str] = {}
        self._added_terms: Counter[str] = Counter()
        """Number of terms that each server has added. Those of removed tools stay until a rebuild."""
        self._views: LruCache[frozenset[str] | None, IndexView] = LruCache(_MAX_CACHED_VIEWS)


def _server_description(catalogue: Catalogue | None) -> str:
    if catalogue is None:
        return ""
    info = catalogue.listing.server_info
    texts = (info.get("title"), info.get("description"), catalogue.listing.instructions)
    return "\n".join(text for text in texts if isinstance(text, str))


_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n|。")
_MAX_READ_CHARS = 2_000
_FIRST_WIDE_CHARACTER = "\u2e80"
"""First character counted with width 2: CJK characters carry about as much meaning as two Latin letters, and
cost a model as many tokens or more."""


def summarize_description(description: str, length: int = 64) -> str:
    """Return the first sentence on one line, truncated at a word boundary to ``length`` columns.

    Chinese, Japanese and Korean characters count as two columns.
    """
    first = _SENTENCE_END.split(description[:_MAX_READ_CHARS].strip(), maxsplit=1)[0]
    line = " ".join(first.split()).rstrip(".。")
    if len(line) <= length and (line.isascii() or _display_width(line) <= length):
        return line
    cut = _truncate_to_width(line, max(length - 1, 0))
    whole_words = cut.rsplit(" ", 1)[0]
    # One very long word would otherwise reduce the summary to almost nothing.
    return (whole_words if 2 * len(whole_words) > len(cut) else cut).rstrip(" ,;:-") + "…"


def _display_width(text: str) -> int:
    return sum(2 if char >= _FIRST_WIDE_CHARACTER else 1 for char in text)


def _truncate_to_width(line: str, width: int) -> str:
    """Return the longest prefix of at most ``width`` columns."""
    columns = 0
    for index, char in enumerate(line):
        columns += 2 if char >= _FIRST_WIDE_CHARACTER else 1
        if columns > width:
            return line[:index]
    return line
