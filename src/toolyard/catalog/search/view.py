"""The index as one caller may know it: only the tools that are allowed, and only their statistics.

How rare a term is, which words exist, which tool stands first: all is counted over the allowed tools alone.
A search in a view gives to the last digit what an index of nothing but these tools gives, so neither results
nor scores tell anything of what is hidden.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

from toolyard.catalog.search.near import Nearby
from toolyard.catalog.search.postings import Postings
from toolyard.catalog.search.related import related

__all__ = ["Concept", "View"]

_RELATED = 0.25
_RELATED_UNKNOWN = 0.7
_WEAKEST = 0.5
"""Of a word that counts for less than this the relatives are left out."""
_NEAR = 0.9
_SPLIT = 0.8
_SHORTEST_HALF = 3
_STRONG = 0.5
_HOT = 4
"""Uses from which on a concept is put together for good."""
_LONG = 4_000
"""Documents from which on a row is searched, not put into a table."""
_ENTRIES_KEPT = 400_000
_CONCEPTS_KEPT = 10_000


class _Row:
    """One term among the allowed tools. ``rarity`` is its inverse document frequency."""

    __slots__ = ("_table", "documents", "highest", "rarity", "weights")

    def __init__(self, documents: Sequence[int], weights: Sequence[float], rarity: float) -> None:
        self.documents = documents
        self.weights = weights
        self.rarity = rarity
        self.highest = max(weights)
        self._table: dict[int, float] | None = None

    @property
    def entries(self) -> int:
        """How many entries looking it up will put into a table that is not there yet."""
        return len(self.documents) if self._table is None and len(self.documents) <= _LONG else 0

    def raise_to(self, column: list[float], places: Mapping[int, int], factor: float) -> None:
        """Raise a document's place in a column to its weight times ``factor``, where that is more."""
        if len(self.documents) > _LONG:
            return self._search(column, places, factor)
        table = self._table
        if table is None:
            table = self._table = dict(zip(self.documents, self.weights, strict=True))
        for number in table.keys() & places.keys():
            column[places[number]] = max(column[places[number]], table[number] * factor)
        return None

    def _search(self, column: list[float], places: Mapping[int, int], factor: float) -> None:
        documents, weights = self.documents, self.weights
        for number, place in places.items():
            at = bisect_left(documents, number)
            if at < len(documents) and documents[at] == number:
                column[place] = max(column[place], weights[at] * factor)


class Concept:
    """A term that was asked for, with the terms that may stand for it; a document counts the best of them.

    ``terms`` are these with their shares, ``bound`` is the most that the concept adds to a document, ``size``
    how many entries its lists have.
    """

    __slots__ = ("_impacts", "_rows", "_strong", "bound", "size", "terms", "uses")

    def __init__(self, terms: Sequence[tuple[int, float]], rows: Sequence[tuple[float, _Row]]) -> None:
        self.terms = terms
        self.bound = max(factor * row.highest for factor, row in rows)
        self.size = sum(len(row.documents) for _, row in rows)
        self.uses = 0
        self._rows = rows
        self._impacts: dict[int, float] | None = None
        self._strong: dict[int, float] | None = None

    @property
    def impacts(self) -> dict[int, float]:
        """What the concept adds to each document that has it; put together at the first use and kept."""
        if self._impacts is None:
            self._impacts = _best((factor, row, 0.0) for factor, row in self._rows)
        return self._impacts

    @property
    def strong(self) -> dict[int, float]:
        """What the concept adds to the documents to which it adds much."""
        if self._strong is None:
            least = _STRONG * self.bound
            rows = ((factor, row, least) for factor, row in self._rows if factor * row.highest >= least)
            self._strong = _best(rows)
        return self._strong

    def column(self, places: Mapping[int, int]) -> list[float]:
        """What the concept adds to each of some documents, which have the places 0, 1, … in this order."""
        impacts = self._impacts
        if impacts is not None:
            return [impacts.get(number, 0.0) for number in places]
        column = [0.0] * len(places)
        for factor, row in self._rows:
            row.raise_to(column, places, factor)
        return column


def _best(rows: Iterable[tuple[float, _Row, float]]) -> dict[int, float]:
    """For each document the most that one of the rows adds, where that is at least so much."""
    best: dict[int, float] = {}
    for factor, row, least in rows:
        need = least / factor
        mine = {
            number: weight * factor
            for number, weight in zip(row.documents, row.weights, strict=True)
            if weight >= need
        }
        if not best:
            best = mine
            continue
        both = {number: max(best[number], mine[number]) for number in best.keys() & mine.keys()}
        best |= mine
        best |= both
    return best


class View:
    """Statistics and impacts over some documents of the postings. Good until these change."""

    def __init__(self, postings: Postings, allowed: Iterable[int] | None, nearby: Nearby) -> None:
        self._postings = postings
        self._nearby = nearby
        self._mask = postings.present
        self._whole = allowed is None
        self.count = postings.count
        if allowed is not None:
            self._mask = bytearray(len(postings.present))
            for number in allowed:
                self._mask[number] = 1
            self.count = sum(self._mask)
        self._rows: dict[int, _Row | None] = {}
        self._concepts: dict[tuple[str, float, bool], Concept | None] = {}
        self._entries = 0
        self._name_rarity: dict[int, tuple[tuple[tuple[int, float], ...], float]] = {}

    def knows(self, text: str) -> bool:
        """Whether any allowed tool has the term."""
        place = self._postings.vocabulary.get(text)
        return place is not None and self._row(place) is not None

    def concept(self, term: str, weight: float, guess: bool = True) -> Concept | None:
        """What a term of a query stands for here, with this weight; None where it stands for nothing.

        ``guess`` allows it to be misspelt or unfinished.
        """
        key = term, weight, guess
        if key not in self._concepts:
            if self._entries > _ENTRIES_KEPT or len(self._concepts) > _CONCEPTS_KEPT:
                self._forget()
            self._concepts[key] = self._concept(term, weight, guess)
        found = self._concepts[key]
        if found is not None and found.uses <= _HOT:
            found.uses += 1
            if found.uses == _HOT:
                self._entries += len(found.impacts)
        return found

    def _forget(self) -> None:
        self._concepts.clear()
        self._rows.clear()
        self._entries = 0

    def name(self, number: int) -> tuple[tuple[tuple[int, float], ...], float]:
        """The terms of a document's name, each with its rarity, and the sum of these."""
        known = self._name_rarity.get(number)
        if known is None:
            rows = ((place, self._row(place)) for place in self._postings.name_terms(number))
            terms = tuple((place, row.rarity) for place, row in rows if row is not None)
            known = self._name_rarity[number] = terms, sum(rarity for _, rarity in terms)
        return known

    def _concept(self, term: str, weight: float, guess: bool) -> Concept | None:
        best: dict[int, float] = {}
        for place, share in self._stand_ins(term, weight, guess):
            best[place] = max(best.get(place, 0.0), share * weight)
        rows = [(row.rarity * share, row) for place, share in best.items() if (row := self._row(place))]
        self._entries += sum(row.entries for _, row in rows)
        return Concept(tuple(best.items()), rows) if rows else None

    def _stand_ins(self, term: str, weight: float, guess: bool) -> list[tuple[int, float]]:
        vocabulary = self._postings.vocabulary
        place = vocabulary.get(term)
        known = place is not None and self._row(place) is not None
        found = [(place, 1.0)] if place is not None and known else []
        if known and weight < _WEAKEST:
            return found
        share = _RELATED if known else _RELATED_UNKNOWN
        others = (vocabulary.get(other) for other in related(term))
        found += [(other, share) for other in others if other is not None and self._row(other) is not None]
        if not found:
            found = self._halves(term)
        if not found and guess:
            near = self._nearby.find(term, lambda place: self._row(place) is not None)
            found = [(place, _NEAR * sure) for place, sure in near]
        return found

    def _halves(self, text: str) -> list[tuple[int, float]]:
        """A word written together that the catalogue writes apart."""
        for at in range(_SHORTEST_HALF, len(text) - _SHORTEST_HALF + 1):
            if self.knows(text[:at]) and self.knows(text[at:]):
                vocabulary = self._postings.vocabulary
                return [(vocabulary[text[:at]], _SPLIT), (vocabulary[text[at:]], _SPLIT)]
        return []

    def _row(self, place: int) -> _Row | None:
        if place in self._rows:
            return self._rows[place]
        found = self._rows[place] = self._count(place)
        return found

    def _count(self, place: int) -> _Row | None:
        posting = self._postings.lists[place]
        documents: Sequence[int] = posting.documents
        weights: Sequence[float] = posting.weights
        if not self._whole or posting.gone:
            kept = list(map(self._mask.__getitem__, documents))
            documents, weights = list(compress(documents, kept)), list(compress(weights, kept))
        held = len(documents)
        if not held:
            return None
        rarity = math.log(1 + (self.count - held + 0.5) / (held + 0.5))
        return _Row(documents, weights, rarity)
