"""What each document's terms count in it, and which documents have a term.

Each document has a table of its terms: a search picks few documents, and weighs each of them once. Each term
has two sets: the documents that have it, and those where it counts much. An update costs in proportion to
itself, and what came is put into the sets all at once. The weights are few numbers, shared by all tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolyard.catalog.search.bit_counters import to_bitset
from toolyard.catalog.search.fields import SearchDocument

__all__ = ["Posting", "Postings"]

_PREFIX_CHARS = 8
_MAX_SUFFIX_CHARS = 3
_STRONG_MIN_WEIGHT = 0.6
_MAX_LISTED_DOCUMENTS = 16
"""Documents up to which the sets are made when they are asked for: most terms have few, and are never."""


class Posting:
    """The documents of one term."""

    __slots__ = ("_much", "_present", "held", "term")

    def __init__(self, term: str) -> None:
        self.term = term
        self.held = 0
        self._present: list[int] | int = []
        self._much: list[int] | int = []

    def add(self, numbers: Sequence[int], strong_numbers: Sequence[int]) -> None:
        """Put documents in; ``much`` are those of them where the term counts much."""
        self.held += len(numbers)
        if isinstance(self._present, list) and isinstance(self._much, list):
            self._present += numbers
            self._much += strong_numbers
            if self.held > _MAX_LISTED_DOCUMENTS:
                self._present, self._much = to_bitset(self._present), to_bitset(self._much)
        else:
            self._present, self._much = (
                self.present | to_bitset(numbers),
                self.strong_documents | to_bitset(strong_numbers),
            )

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.held -= 1
        self._present = _remove_number(self._present, number)
        self._much = _remove_number(self._much, number)

    @property
    def present(self) -> int:
        """The set of all documents."""
        return to_bitset(self._present) if isinstance(self._present, list) else self._present

    @property
    def strong_documents(self) -> int:
        """The set of the documents in which the term counts much."""
        return to_bitset(self._much) if isinstance(self._much, list) else self._much


class Postings:
    """All tables and sets. Good for reading once it is settled."""

    def __init__(self) -> None:
        self.posting_by_term: dict[str, Posting] = {}
        self.terms: list[str] = []
        self._term_prefixes: set[str] = set()
        self.documents: list[Mapping[str, float]] = []
        """What each document's terms count in it: below zero where a term is in its name."""
        self.names: list[tuple[str, ...]] = []
        """The terms in each document's name."""
        self.count = 0
        self._pending_numbers: list[int] = []

    def add(self, document: SearchDocument) -> int:
        """Put a document in; its number comes back."""
        number = len(self.documents)
        named = [term for term in sorted(document.name_terms) if term in document.weights]
        weights = {self._get_or_add_posting(term).term: weight for term, weight in document.weights.items()}
        for term in named:
            weights[term] *= -1
        self.count += 1
        self.documents.append(weights)
        self._pending_numbers.append(number)
        self.names.append(tuple([self.posting_by_term[term].term for term in named]))
        return number

    def remove(self, number: int) -> None:
        """Take a document out."""
        self.flush_pending()
        self.count -= 1
        for term in self.documents[number]:
            self.posting_by_term[term].remove(number)
        self.documents[number] = {}
        self.names[number] = ()

    def flush_pending(self) -> None:
        """Bring the sets up to date."""
        came: dict[str, tuple[list[int], list[int]]] = {}
        for number in self._pending_numbers:
            for term, weight in self.documents[number].items():
                held = came.get(term)
                if held is None:
                    held = came[term] = ([], [])
                held[0].append(number)
                if abs(weight) >= _STRONG_MIN_WEIGHT:
                    held[1].append(number)
        for term, (numbers, much) in came.items():
            self.posting_by_term[term].add(numbers, much)
        self._pending_numbers.clear()

    def may_have_stem(self, word: str) -> bool:
        """Whether there may be a term that is the stem of this word: it is cheaper to ask than to find it."""
        return len(word) < _PREFIX_CHARS + _MAX_SUFFIX_CHARS or word[:_PREFIX_CHARS] in self._term_prefixes

    @property
    def removed_count(self) -> int:
        """Numbers that stand for nothing any more."""
        return len(self.documents) - self.count

    def _get_or_add_posting(self, term: str) -> Posting:
        posting = self.posting_by_term.get(term)
        if posting is None:
            posting = self.posting_by_term[term] = Posting(term)
            self.terms.append(term)
            self._term_prefixes.add(term[:_PREFIX_CHARS])
        return posting


def _remove_number(documents: list[int] | int, number: int) -> list[int] | int:
    if isinstance(documents, list):
        return [one for one in documents if one != number]
    return documents & ~(1 << number)
