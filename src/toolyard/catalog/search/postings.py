"""Which documents have a term, and how much it counts there.

Each term has a table of its documents, and two sets: all of them, and those where it counts much. An update
costs in proportion to itself, and what came is put into the sets all at once. The weights are few numbers,
shared by all tables.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection

from toolyard.catalog.search.bits import bits
from toolyard.catalog.search.fields import Document

__all__ = ["Posting", "Postings"]

_MUCH = 0.5
_FEW = 16
"""Documents up to which the sets are made when they are asked for: most terms have few, and are never."""


class Posting:
    """One term's documents, each with its weight."""

    __slots__ = ("_much", "_present", "documents")

    def __init__(self) -> None:
        self.documents: dict[int, float] = {}
        self._present: int | None = None
        self._much = 0

    def settle(self, came: Collection[int]) -> None:
        """Put documents that came into the sets."""
        if self._present is None:
            if len(self.documents) <= _FEW:
                return
            came, self._present = self.documents, 0
        self._present |= bits(came)
        self._much |= bits(self._with_much(came))

    def remove(self, number: int) -> None:
        """Take a document out."""
        del self.documents[number]
        if self._present is not None:
            self._present &= ~(1 << number)
            self._much &= ~(1 << number)

    @property
    def present(self) -> int:
        """The set of all documents."""
        return bits(self.documents) if self._present is None else self._present

    @property
    def much(self) -> int:
        """The set of the documents in which the term counts much."""
        return bits(self._with_much(self.documents)) if self._present is None else self._much

    def _with_much(self, numbers: Collection[int]) -> list[int]:
        weights = self.documents
        return [number for number in numbers if weights[number] >= _MUCH]


class Postings:
    """All tables, and what stands in which document. Good for reading once it is settled."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.terms: list[str] = []
        self.lists: list[Posting] = []
        self.names: list[tuple[int, ...]] = []
        """The places of the terms in each document's name."""
        self.count = 0
        self._terms_of: list[array[int]] = []
        self._came: list[int] = []

    def add(self, document: Document) -> int:
        """Put a document in; its number comes back."""
        number = len(self._terms_of)
        ids = array("I", [self._place(term) for term in document.weights])
        lists = self.lists
        for place, weight in zip(ids, document.weights.values(), strict=True):
            lists[place].documents[number] = weight
        self.count += 1
        self._terms_of.append(ids)
        self._came.append(number)
        named = [term for term in sorted(document.name_terms) if term in document.weights]
        self.names.append(tuple([self.vocabulary[term] for term in named]))
        return number

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.count -= 1
        for place in self._terms_of[number]:
            self.lists[place].remove(number)
        self._terms_of[number] = array("I")
        self.names[number] = ()

    def settle(self) -> None:
        """Bring the sets up to date."""
        came: dict[int, list[int]] = {}
        for number in self._came:
            for place in self._terms_of[number]:
                came.setdefault(place, []).append(number)
        for place, numbers in came.items():
            self.lists[place].settle(numbers)
        self._came.clear()

    @property
    def wasted(self) -> int:
        """Numbers that stand for nothing any more."""
        return len(self._terms_of) - self.count

    def _place(self, term: str) -> int:
        place = self.vocabulary.get(term)
        if place is None:
            place = self.vocabulary[term] = len(self.terms)
            self.terms.append(term)
            self.lists.append(Posting())
        return place
