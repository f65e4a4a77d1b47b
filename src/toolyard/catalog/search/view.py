"""What the postings say of the tools that a caller may know of.

How rare a word is counts only among these, so that a search among some tools is a search in an index of only
those, and nothing hidden shows through a rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from toolyard.catalog.search.bits import Bits, planes
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
_LEVELS = 3.5
"""Steps in which a concept's share of a sum is counted, for each unit of it."""
_LITTLE = 0.4
_NAME_EASE = 1.0
"""What a name's rarities are added to, so that one of a single common word is never wholly covered."""
_CONCEPTS_KEPT = 10_000
_FEW = 12


class Concept:
    """A term that was asked for, with the terms that may stand for it; a document counts the best of them.

    ``terms`` are these with their shares, ``planes`` about what the concept adds to each document.
    """

    __slots__ = ("_tables", "planes", "terms")

    def __init__(
        self,
        terms: Sequence[tuple[int, float]],
        tables: Sequence[tuple[float, Mapping[int, float]]],
        sums: Sequence[int],
    ) -> None:
        self.terms = terms
        self.planes = sums
        self._tables = tables

    def column(self, places: Mapping[int, int]) -> list[float]:
        """What the concept adds to each of some documents, which have the places 0, 1, … in this order."""
        column = [0.0] * len(places)
        wanted = places.keys()
        for factor, documents in self._tables:
            # Where there are few, to look at each costs less than to find those of both.
            for number in documents if len(documents) < _FEW else documents.keys() & wanted:
                if number in places:
                    place = places[number]
                    more = documents[number] * factor
                    if more > column[place]:
                        column[place] = more
        return column


class View:
    """Statistics and concepts over some documents of the postings. Good until these change."""

    def __init__(self, postings: Postings, allowed: Iterable[int] | None, nearby: Nearby) -> None:
        self._postings = postings
        self._nearby = nearby
        self._allowed = None if allowed is None else Bits(allowed).value
        self.count = postings.count if self._allowed is None else self._allowed.bit_count()
        self._rarities: dict[int, float] = {}
        self._concepts: dict[tuple[str, float, bool], Concept | None] = {}
        self._names: dict[int, tuple[tuple[int, float], ...]] = {}

    def knows(self, text: str) -> bool:
        """Whether any allowed tool has the term."""
        place = self._postings.vocabulary.get(text)
        return place is not None and self._rarity(place) > 0.0

    def concept(self, term: str, weight: float, guess: bool = True) -> Concept | None:
        """What a term of a query stands for here, with this weight; None where it stands for nothing.

        ``guess`` allows it to be misspelt or unfinished.
        """
        key = term, weight, guess
        try:
            return self._concepts[key]
        except KeyError:
            if len(self._concepts) > _CONCEPTS_KEPT:
                self._concepts.clear()
            found = self._concepts[key] = self._concept(term, weight, guess)
            return found

    def covers(self, numbers: Iterable[int], have: Mapping[int, float]) -> list[float]:
        """The share of each document's name, 0 to 1, that some terms cover; a rare term is more of it."""
        names = self._names
        found: list[float] = []
        for number in numbers:
            name = names.get(number)
            if name is None:
                name = names[number] = self._name(number)
            covered = 0.0
            for place, share in name:
                if place in have:
                    covered += share * have[place]
            found.append(covered)
        return found

    def _name(self, number: int) -> tuple[tuple[int, float], ...]:
        places = self._postings.name_terms(number)
        rarities = [self._rarity(place) for place in places]
        total = sum(rarities) + _NAME_EASE
        return tuple([(place, rarity / total) for place, rarity in zip(places, rarities, strict=True)])

    def _rarity(self, place: int) -> float:
        """A term's inverse document frequency, 0 where no allowed document has it."""
        rarity = self._rarities.get(place)
        if rarity is None:
            posting = self._postings.lists[place]
            held = len(posting.documents)
            if self._allowed is not None:
                held = (posting.present & self._allowed).bit_count()
            rarity = math.log(1 + (self.count - held + 0.5) / (held + 0.5)) if held else 0.0
            self._rarities[place] = rarity
        return rarity

    def _concept(self, term: str, weight: float, guess: bool) -> Concept | None:
        found = self._stand_ins(term, weight, guess)
        if not found:
            return None
        allowed, lists = self._allowed, self._postings.lists
        nearest = found[0][1]
        tables: list[tuple[float, Mapping[int, float]]] = []
        levels: dict[int, int] = {}
        for place, share, rarity in found:
            posting = lists[place]
            factor = rarity * share * weight
            tables.append((factor, posting.documents))
            level = int(_LEVELS * factor) + 1
            levels[level] = levels.get(level, 0) | posting.much
            if share == nearest:
                level = int(_LEVELS * _LITTLE * factor) + 1
                levels[level] = levels.get(level, 0) | posting.present
        if allowed is not None:
            levels = {level: documents & allowed for level, documents in levels.items()}
        terms = tuple([(place, share * weight) for place, share, _ in found])
        return Concept(terms, tables, planes(levels.items()))

    def _stand_ins(self, term: str, weight: float, guess: bool) -> list[tuple[int, float, float]]:
        """The places of the terms that may stand for one, each once, with its share and rarity; those with
        the highest share first."""
        vocabulary, rarity = self._postings.vocabulary, self._rarity
        place = vocabulary.get(term)
        found = [(place, 1.0, rare)] if place is not None and (rare := rarity(place)) else []
        if found and weight < _WEAKEST:
            return found
        share = _RELATED if found else _RELATED_UNKNOWN
        for other in related(term):
            place = vocabulary.get(other)
            if place is not None and (rare := rarity(place)):
                found.append((place, share, rare))
        if not found:
            found = self._halves(term)
        if not found and guess:
            near = self._nearby.find(term, lambda place: rarity(place) > 0.0)
            found = [(place, _NEAR * sure, rarity(place)) for place, sure in near]
        return found

    def _halves(self, text: str) -> list[tuple[int, float, float]]:
        """A word written together that the catalogue writes apart."""
        for at in range(_SHORTEST_HALF, len(text) - _SHORTEST_HALF + 1):
            if self.knows(text[:at]) and self.knows(text[at:]):
                vocabulary = self._postings.vocabulary
                places = {vocabulary[text[:at]]: None, vocabulary[text[at:]]: None}
                return [(place, _SPLIT, self._rarity(place)) for place in places]
        return []
