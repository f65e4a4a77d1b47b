"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

__all__ = ["Pagination", "paginate"]

T = TypeVar("T")

ENTRIES_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Pagination:
    """Which page of how many, and the way to the others."""

    number: int
    last: int
    total: int
    path: str
    query: Mapping[str, str]

    def href(self, number: int) -> str:
        """The address of another page of the same list."""
        kept = {key: value for key, value in self.query.items() if value}
        return f"{self.path}?{urlencode({**kept, 'page': str(number)})}"


def paginate(
    entries: Sequence[T],
    requested_page: str,
    path: str,
    query: Mapping[str, str],
    *,
    per_page: int = ENTRIES_PER_PAGE,
) -> tuple[Sequence[T], Pagination]:
    """The entries of the wanted page. A number that is none, or too high, is the nearest that there is."""
    last = max(1, -(-len(entries) // per_page))
    number = (
        min(max(1, int(requested_page)), last)
        if requested_page.isascii() and requested_page.isdigit() and len(requested_page) < 9
        else 1
    )
    start = (number - 1) * per_page
    return entries[start : start + per_page], Pagination(number, last, len(entries), path, query)
