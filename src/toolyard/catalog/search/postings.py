"""What each document's terms count in it, and which documents have a term.

Each document has a table of its terms: a search picks few documents, and weighs each of them once. Each term
has two sets: the documents that have it, and those where it counts much. An update costs in proportion to
itself, and what came is put into the sets all at once. The weights are few numbers, shared by all tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolyard.catalog.search.bit_counters import bits
from toolyard.catalog.search.fields import Document

__all__ = ["Posting", "Postings"]

_HEAD = 8
_TAIL = 3
_MUCH = 0.6
_FEW = 16
"""Documents up to which the sets are made when they are asked for: most terms have few, and are never."""


class Posting:
    """The documents of one term."""

    __slots__ = ("_much", "_present", "held", "term")

    def __init__(self, term: str) -> None:
        self.term = term
        self.held = 0
        self._present: list[int] | int = []
        self._much: list[int] | int = []

    def add(self, came: Sequence[int], much: Sequence[int]) -> None:
        """Put documents in; ``much`` are those of them where the term counts much."""
        self.held += len(came)
        if isinstance(self._present, list) and isinstance(self._much, list):
            self._present += came
            self._much += much
            if self.held > _FEW:
                self._present, self._much = bits(self._present), bits(self._much)
        else:
            self._present, self._much = self.present | bits(came), self.much | bits(much)

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.held -= 1
        self._present = _without(self._present, number)
        self._much = _without(self._much, number)

    @property
    def present(self) -> int:
        """The set of all documents."""
        return bits(self._present) if isinstance(self._present, list) else self._present

    @property
    def much(self) -> int:
        """The set of the documents in which the term counts much."""
        return bits(self._much) if isinstance(self._much, list) else self._much


class Postings:
    """All tables and sets. Good for reading once it is settled."""

    def __init__(self) -> None:
        self.lists: dict[str, Posting] = {}
        self.terms: list[str] = []
        self._heads: set[str] = set()
        self.documents: list[Mapping[str, float]] = []
        """What each document's terms count in it: below zero where a term is in its name."""
        self.names: list[tuple[str, ...]] = []
        """The terms in each document's name."""
        self.count = 0
        self._came: list[int] = []

    def add(self, document: Document) -> int:
        """Put a document in; its number comes back."""
        number = len(self.documents)
        named = [term for term in sorted(document.name_terms) if term in document.weights]
        weights = {self._posting(term).term: weight for term, weight in document.weights.items()}
        for term in named:
            weights[term] *= -1
        self.count += 1
        self.documents.append(weights)
        self._came.append(number)
        self.names.append(tuple([self.lists[term].term for term in named]))
        return number

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.settle()
        self.count -= 1
        for term in self.documents[number]:
            self.lists[term].remove(number)
        self.documents[number] = {}
        self.names[number] = ()

    def settle(self) -> None:
        """Bring the sets up to date."""
        came: dict[str, tuple[list[int], list[int]]] = {}
        for number in self._came:
            for term, weight in self.documents[number].items():
                held = came.get(term)
                if held is None:
                    held = came[term] = ([], [])
                held[0].append(number)
                if abs(weight) >= _MUCH:
                    held[1].append(number)
        for term, (numbers, much) in came.items():
            self.lists[term].add(numbers, much)
        self._came.clear()

    def has_like(self, word: str) -> bool:
        """Whether there may be a term that is the stem of this word: it is cheaper to ask than to find it."""
        return len(word) < _HEAD + _TAIL or word[:_HEAD] in self._heads

    @property
    def wasted(self) -> int:
        """Numbers that stand for nothing any more."""
        return len(self.documents) - self.count

    def _posting(self, term: str) -> Posting:
        posting = self.lists.get(term)
        if posting is None:
            posting = self.lists[term] = Posting(term)
            self.terms.append(term)
            self._heads.add(term[:_HEAD])
        return posting


def _without(documents: list[int] | int, number: int) -> list[int] | int:
    if isinstance(documents, list):
        return [one for one in documents if one != number]
    return documents & ~(1 << number)
