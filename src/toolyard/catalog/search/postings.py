"""Which documents have a term, and how much it counts there: inverted lists in arrays.

Documents get rising numbers and are only ever appended, so that each list is sorted. One that is taken out
is marked, and a list is cleared of such when they are half of it: an update costs in proportion to itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from toolyard.catalog.search.fields import Document

__all__ = ["Posting", "Postings"]

_FEW = 8


class Posting:
    """One term's documents in rising order, each with its weight. ``gone`` of them were taken out."""

    __slots__ = ("documents", "gone", "weights")

    def __init__(self) -> None:
        self.documents = array("I")
        self.weights = array("f")
        self.gone = 0


class Postings:
    """All lists, and the documents in them. ``present`` has one byte a document: 1 while it is there."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.terms: list[str] = []
        self.lists: list[Posting] = []
        self.present = bytearray()
        self.count = 0
        self._terms_of: list[array[int]] = []
        self._names_of: list[array[int]] = []

    def add(self, document: Document) -> int:
        """Put a document in; its number comes back."""
        number = len(self.present)
        ids = array("I")
        for term, weight in document.weights.items():
            place = self._place(term)
            posting = self.lists[place]
            posting.documents.append(number)
            posting.weights.append(weight)
            ids.append(place)
        self.present.append(1)
        self.count += 1
        self._terms_of.append(ids)
        self._names_of.append(
            array(
                "I", [self._place(term) for term in sorted(document.name_terms) if term in document.weights]
            )
        )
        return number

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.present[number] = 0
        self.count -= 1
        for place in self._terms_of[number]:
            posting = self.lists[place]
            posting.gone += 1
            if posting.gone >= _FEW and 2 * posting.gone >= len(posting.documents):
                self._clear(posting)
        self._terms_of[number] = self._names_of[number] = array("I")

    def name_terms(self, number: int) -> Sequence[int]:
        """The places of the terms in a document's name."""
        return self._names_of[number]

    @property
    def wasted(self) -> int:
        """Numbers that stand for nothing any more."""
        return len(self.present) - self.count

    def _place(self, term: str) -> int:
        place = self.vocabulary.get(term)
        if place is None:
            place = self.vocabulary[term] = len(self.terms)
            self.terms.append(term)
            self.lists.append(Posting())
        return place

    def _clear(self, posting: Posting) -> None:
        present = self.present
        kept = [at for at, number in enumerate(posting.documents) if present[number]]
        posting.weights = array("f", [posting.weights[at] for at in kept])
        posting.documents = array("I", [posting.documents[at] for at in kept])
        posting.gone = 0
