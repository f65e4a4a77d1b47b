"""Which documents have a term, and how much it counts there.

Each term has a table of its documents, and two sets: all of them, and those where it counts much. They are
kept up to date as documents come and go, so that a query prepares little, and an update costs in proportion
to itself. The weights are few numbers, shared by all tables.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence

from toolyard.catalog.search.bits import Bits
from toolyard.catalog.search.fields import Document

__all__ = ["Posting", "Postings"]

_MUCH = 0.5
_FEW = 16
"""Documents up to which the sets are made when they are asked for: most terms have few, and are never."""
_VERY_FEW = 4


class Posting:
    """One term's documents, each with its weight."""

    __slots__ = ("_much", "_present", "documents")

    def __init__(self) -> None:
        self.documents: dict[int, float] = {}
        self._present: Bits | None = None
        self._much: Bits | None = None

    def put(self, number: int, weight: float) -> None:
        """Add a document."""
        self.documents[number] = weight
        if self._present is not None and self._much is not None:
            self._present.add(number)
            if weight >= _MUCH:
                self._much.add(number)
        elif len(self.documents) > _FEW:
            self._present = Bits(self.documents)
            self._much = Bits(self._with_much())

    def remove(self, number: int) -> None:
        """Take a document out."""
        del self.documents[number]
        if self._present is not None and self._much is not None:
            self._present.discard(number)
            self._much.discard(number)

    @property
    def present(self) -> int:
        """The set of all documents."""
        return _set_of(self.documents) if self._present is None else self._present.value

    @property
    def much(self) -> int:
        """The set of the documents in which the term counts much."""
        return _set_of(self._with_much()) if self._much is None else self._much.value

    def _with_much(self) -> list[int]:
        return [number for number, weight in self.documents.items() if weight >= _MUCH]


def _set_of(numbers: Collection[int]) -> int:
    if len(numbers) <= _VERY_FEW:
        value = 0
        for number in numbers:
            value |= 1 << number
        return value
    held = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        held[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(held, "little")


class Postings:
    """All tables, and what stands in which document."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.terms: list[str] = []
        self.lists: list[Posting] = []
        self.count = 0
        self._terms_of: list[array[int]] = []
        self._names_of: list[array[int]] = []

    def add(self, document: Document) -> int:
        """Put a document in; its number comes back."""
        number = len(self._terms_of)
        ids = array("I", [self._place(term) for term in document.weights])
        lists = self.lists
        for place, weight in zip(ids, document.weights.values(), strict=True):
            lists[place].put(number, weight)
        self.count += 1
        self._terms_of.append(ids)
        names = [self._place(term) for term in sorted(document.name_terms) if term in document.weights]
        self._names_of.append(array("I", names))
        return number

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.count -= 1
        for place in self._terms_of[number]:
            self.lists[place].remove(number)
        self._terms_of[number] = self._names_of[number] = array("I")

    def name_terms(self, number: int) -> Sequence[int]:
        """The places of the terms in a document's name."""
        return self._names_of[number]

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
