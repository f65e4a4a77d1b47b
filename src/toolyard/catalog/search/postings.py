"""Term weights of each document, the documents that contain each term, and counters over document sets.

Both directions are stored. A search first selects candidates with the document sets of its terms (an inverted
index), then scores only those candidates with the term tables of the documents (a forward index). Scoring
with a table per term would look into another table for each term and document, with poor cache locality.

Each term has two document sets: all documents that contain it, and those in which its weight is high. The
second lets the coarse counters prefer documents in which a term matters. Adding or removing a document costs
in proportion to its terms; additions are collected and merged into the sets at once. Weights have few
distinct values (see ``documents``), so that all tables share the same float objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from sys import byteorder

from toolyard.catalog.search.documents import SearchDocument

__all__ = [
    "MAX_LISTED_DOCUMENTS",
    "Posting",
    "Postings",
    "add_to_counters",
    "bitset_members",
    "select_highest",
    "to_bitset",
]


# Document sets and per-document counters are the bits of Python integers: document n is bit n. Counters are
# bit-sliced: plane 0 holds bit 0 of every document's sum, plane 1 holds bit 1, and so on. One operation on a
# plane updates all documents at once, and the best of several thousand documents are selected in about a
# hundred operations.
_MAX_SHIFTED_MEMBERS = 8
"""Size up to which a bitset is built by shifting; above it, filling a byte array is faster."""
_WORD_BITS = 64


def to_bitset(numbers: Collection[int]) -> int:
    """Return the integer whose set bits are ``numbers``."""
    if len(numbers) <= _MAX_SHIFTED_MEMBERS:
        value = 0
        for number in numbers:
            value |= 1 << number
        return value
    # Python integers are immutable: each ``|=`` above copies the whole integer, so building a large set
    # that way takes quadratic time.
    buffer = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        buffer[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(buffer, "little")


def add_to_counters(planes: list[int], steps: Iterable[tuple[int, int]]) -> None:
    """Add steps to the counters in place: ``(exponent, documents)`` adds ``2 ** exponent`` to each document.

    ``planes`` must be long enough for the largest sum; a carry out of the last plane raises IndexError.
    """
    # A binary ripple-carry adder, applied to all documents of a step in parallel: XOR is the sum bit and AND
    # is the carry into the next plane. Most steps end after one or two planes, when no document carries.
    for exponent, documents in steps:
        while documents:
            plane = planes[exponent]
            planes[exponent] = plane ^ documents
            documents &= plane
            exponent += 1


def select_highest(planes: Sequence[int], limit: int) -> tuple[int, int]:
    """Return two bitsets: the documents with the highest sums, and the documents tied at the cut-off.

    The first has at most ``limit`` members. The second has the documents with the next lower sum, which do
    not all fit. Documents with the sum 0 are in neither.
    """
    undecided = 0
    for plane in planes:
        undecided |= plane
    # A binary search for the cut-off sum, from the most significant plane down. Documents with the current
    # bit set are higher than the other undecided ones. If all of them fit, they are selected and the search
    # goes on among the others; if not, the cut-off lies among them and the others are out. After the last
    # plane the undecided documents agree in every bit, so they are equal.
    selected = selected_count = 0
    for plane in reversed(planes):
        if not plane:
            continue
        higher = undecided & plane
        count = higher.bit_count()
        if selected_count + count > limit:
            undecided = higher
        else:
            selected |= higher
            selected_count += count
            undecided ^= higher
    return selected, undecided


def bitset_members(documents: int) -> list[int]:
    """Return the positions of the set bits of ``documents``, in ascending order."""
    members: list[int] = []
    # Each operation on a large integer costs in proportion to its length. Splitting it into machine words
    # first keeps the loop below on small integers, and ``compress`` skips the empty words.
    words = array(
        "Q", documents.to_bytes(-(-documents.bit_length() // _WORD_BITS) * (_WORD_BITS // 8), byteorder)
    )
    if byteorder == "big":
        words.reverse()
    for position in compress(range(len(words)), words):
        word, offset = words[position], position * _WORD_BITS - 1
        while word:
            lowest_bit = word & -word
            members.append(offset + lowest_bit.bit_length())
            word ^= lowest_bit
    return members


_PREFIX_CHARS = 8
_MAX_SUFFIX_CHARS = 3
"""Number of characters at the end of a word that stemming is assumed to change."""
_STRONG_MIN_WEIGHT = 0.6
"""Weight from which a term counts as strong in a document."""
MAX_LISTED_DOCUMENTS = 16
"""Number of documents up to which a posting stores lists and builds its bitsets on demand.

Most terms occur in few documents and are never searched for, and a bitset is as long as its highest number.
"""


class Posting:
    """Documents that contain one term."""

    __slots__ = ("_max_listed_documents", "_present", "_strong", "document_count", "term")

    def __init__(self, term: str, max_listed_documents: int) -> None:
        self.term = term
        self._max_listed_documents = max_listed_documents
        self.document_count = 0
        self._present: list[int] | int = []
        self._strong: list[int] | int = []

    def add(self, numbers: Sequence[int], strong_numbers: Sequence[int]) -> None:
        """Add documents. ``strong_numbers`` is the subset in which the term has a high weight."""
        self.document_count += len(numbers)
        if isinstance(self._present, list) and isinstance(self._strong, list):
            self._present += numbers
            self._strong += strong_numbers
            if self.document_count > self._max_listed_documents:
                self._present, self._strong = to_bitset(self._present), to_bitset(self._strong)
        else:
            self._present, self._strong = (
                self.present | to_bitset(numbers),
                self.strong_documents | to_bitset(strong_numbers),
            )

    def remove(self, number: int) -> None:
        """Remove a document that was added before."""
        self.document_count -= 1
        self._present = _remove_number(self._present, number)
        self._strong = _remove_number(self._strong, number)

    @property
    def present(self) -> int:
        """Bitset of all documents that contain the term."""
        return to_bitset(self._present) if isinstance(self._present, list) else self._present

    @property
    def strong_documents(self) -> int:
        """Bitset of the documents in which the term has a high weight."""
        return to_bitset(self._strong) if isinstance(self._strong, list) else self._strong


class Postings:
    """Forward and inverted index of all documents.

    Call ``flush_pending`` after adding documents and before reading the document sets.
    """

    def __init__(self, max_listed_documents: int = MAX_LISTED_DOCUMENTS) -> None:
        self._max_listed_documents = max_listed_documents
        self.posting_by_term: dict[str, Posting] = {}
        self.terms: list[str] = []
        self._term_prefixes: set[str] = set()
        self.documents: list[Mapping[str, float]] = []
        """Term weights by document number. The weight is negative if the term occurs in the tool's name."""
        self.names: list[tuple[str, ...]] = []
        """Terms of the tool's name, by document number."""
        self.count = 0
        self._pending_numbers: list[int] = []

    def add(self, document: SearchDocument) -> int:
        """Add a document and return its number. Numbers are never reused."""
        number = len(self.documents)
        name_terms = [term for term in sorted(document.name_terms) if term in document.weights]
        # ``posting.term`` is one string object per term, so that equal keys of all tables share memory.
        weights = {self._get_or_add_posting(term).term: weight for term, weight in document.weights.items()}
        # The sign marks the terms of the name: scoring needs that flag for each term it looks up, and a
        # second lookup in another table would cost as much as the first.
        for term in name_terms:
            weights[term] *= -1
        self.count += 1
        self.documents.append(weights)
        self._pending_numbers.append(number)
        self.names.append(tuple([self.posting_by_term[term].term for term in name_terms]))
        return number

    def without_new_terms(self, document: SearchDocument) -> SearchDocument:
        """Return a document without the terms that no document had before."""
        known = self.posting_by_term
        weights = {term: weight for term, weight in document.weights.items() if term in known}
        return SearchDocument(weights, document.name_terms)

    def remove(self, number: int) -> None:
        """Remove a document. Its number stays unused."""
        self.flush_pending()
        self.count -= 1
        for term in self.documents[number]:
            self.posting_by_term[term].remove(number)
        # The number is not given to another document, since all bitsets are positions: closing the gap would
        # rewrite every one of them. The owner rebuilds the index when there are too many gaps (see
        # ``removed_count``).
        self.documents[number] = {}
        self.names[number] = ()

    def flush_pending(self) -> None:
        """Merge added documents into the document sets."""
        # Grouped by term first: adding to a bitset copies it, so each one is touched once for all additions.
        additions: dict[str, tuple[list[int], list[int]]] = {}
        for number in self._pending_numbers:
            for term, weight in self.documents[number].items():
                entry = additions.get(term)
                if entry is None:
                    entry = additions[term] = ([], [])
                entry[0].append(number)
                if abs(weight) >= _STRONG_MIN_WEIGHT:
                    entry[1].append(number)
        for term, (numbers, strong_numbers) in additions.items():
            self.posting_by_term[term].add(numbers, strong_numbers)
        self._pending_numbers.clear()

    def may_have_stem(self, word: str) -> bool:
        """Return False if no indexed term can be the stem of ``word``.

        Cheaper than stemming, and most words tested this way have no match.
        """
        return len(word) < _PREFIX_CHARS + _MAX_SUFFIX_CHARS or word[:_PREFIX_CHARS] in self._term_prefixes

    @property
    def removed_count(self) -> int:
        """Number of document numbers left unused by removed documents."""
        return len(self.documents) - self.count

    def _get_or_add_posting(self, term: str) -> Posting:
        posting = self.posting_by_term.get(term)
        if posting is None:
            posting = self.posting_by_term[term] = Posting(term, self._max_listed_documents)
            self.terms.append(term)
            self._term_prefixes.add(term[:_PREFIX_CHARS])
        return posting


def _remove_number(documents: list[int] | int, number: int) -> list[int] | int:
    if isinstance(documents, list):
        return [document for document in documents if document != number]
    return documents & ~(1 << number)
