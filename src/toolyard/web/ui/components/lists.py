"""Search in lists, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from toolyard.web.ui.components.forms import parse_number

__all__ = ["Pagination", "filter_by_words", "paginate"]

T = TypeVar("T")

ENTRIES_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Pagination:
    """Position in a paginated list, and links to its other pages."""

    number: int
    last: int
    total: int
    path: str
    query: Mapping[str, str]

    def href(self, number: int) -> str:
        """Return the URL of another page of the same list."""
        query = {key: value for key, value in self.query.items() if value}
        return f"{self.path}?{urlencode({**query, 'page': str(number)})}"


def filter_by_words(entries: Iterable[T], query: str, text_of: Callable[[T], str]) -> list[T]:
    """Return the entries whose text contains all words of a query, in any case."""
    words = query.casefold().split()

    def matches(entry: T) -> bool:
        text = text_of(entry).casefold()
        return all(word in text for word in words)

    return list(filter(matches, entries))


def paginate(
    entries: Sequence[T],
    requested_page: str,
    path: str,
    query: Mapping[str, str],
    *,
    per_page: int = ENTRIES_PER_PAGE,
) -> tuple[Sequence[T], Pagination]:
    """Return the entries of the requested page. An invalid page number means the first page, one that is too
    high the last."""
    # Ceiling division; an empty list has one page.
    last = max(1, -(-len(entries) // per_page))
    number = min(max(1, parse_number(requested_page) or 1), last)
    start = (number - 1) * per_page
    return entries[start : start + per_page], Pagination(number, last, len(entries), path, query)
