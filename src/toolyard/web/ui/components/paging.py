"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

__all__ = ["Pages", "page_of"]

T = TypeVar("T")

PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Pages:
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


def page_of(
    everything: Sequence[T], wanted: str, path: str, query: Mapping[str, str], *, per_page: int = PER_PAGE
) -> tuple[Sequence[T], Pages]:
    """The entries of the wanted page. A number that is none, or too high, is the nearest that there is."""
    last = max(1, -(-len(everything) // per_page))
    number = (
        min(max(1, int(wanted)), last) if wanted.isascii() and wanted.isdigit() and len(wanted) < 9 else 1
    )
    start = (number - 1) * per_page
    return everything[start : start + per_page], Pages(number, last, len(everything), path, query)
