"""Search in lists, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from toolyard.web.ui.components.forms import parse_number

__all__ = ["Pagination", "paginate"]

T = TypeVar("T")

ENTRIES_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Pagination:
    """Position in a paginated list, and links to its other pages."""

    number: int
    last: int
    total: int
    path: str
    query: str = ""

    def href(self, number: int) -> str:
        """Return the URL of another page of the same list."""
        return f"{self.path}?{urlencode(({'q': self.query} if self.query else {}) | {'page': number})}"


def paginate(
    entries: Iterable[T],
    text_of: Callable[[T], str],
    path: str,
    query: str,
    requested_page: str,
    *,
    per_page: int = ENTRIES_PER_PAGE,
) -> tuple[Sequence[T], Pagination]:
    """Return one page of the entries whose text contains all words of a query, in any case.

    An invalid page number means the first page, one that is too high the last.
    """
    words = query.casefold().split()

    def matches(entry: T) -> bool:
        text = text_of(entry).casefold()
        return all(word in text for word in words)

    found = list(filter(matches, entries))
    # Ceiling division; an empty list has one page.
    last = max(1, -(-len(found) // per_page))
    number = min(max(1, parse_number(requested_page) or 1), last)
    start = (number - 1) * per_page
    return found[start : start + per_page], Pagination(number, last, len(found), path, query)
