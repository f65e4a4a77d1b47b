"""What the postings say of the tools that a caller may know of.

How rare a word is counts only among these, so that a search among some tools is a search in an index of only
those, and nothing hidden shows through a rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from toolyard.catalog.search.bits import bits, planes
from toolyard.catalog.search.near import Nearby
from toolyard.catalog.search.postings import Postings
from toolyard.catalog.search.related import Family, families

__all__ = ["Concept", "View"]

_RELATED = 0.25
_RELATED_UNKNOWN = 0.7
_NEAR = 0.9
_SPLIT = 0.8
_SHORTEST_HALF = 3
_LEVELS = 2.5
"""Steps in which a concept's share of a sum is counted, for each unit of it."""
_LITTLE = 0.4
_LIGHT = 0.35
"""About what a word counts whose relatives do not count."""
_NAME_EASE = 1.0
"""What a name's rarities are added to, so that one of a single common word is never wholly covered."""
_CONCEPTS_KEPT = 2_000
_FEW = 12

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Table = tuple[float, Mapping[int, float]]


class Concept:
    """A term that was asked for, with the terms that may stand for it; a document counts the best of them.

    ``terms`` are these with their shares, ``planes`` about what the concept adds to each document.
    """

    __slots__ = ("_tables", "planes", "terms")

    def __init__(
        self,
        terms: Sequence[tuple[int, float]],
        tables: Sequence[_Table],
        sums: Sequence[int],
    ) -> None:
        self.terms = terms
        self.planes = sums
        self._tables = tables

    def column(self, places: Mapping[int, int], weight: float) -> list[float]:
        """What the concept adds to each of some documents, which have the places 0, 1, … in this order."""
        column = [0.0] * len(places)
        wanted = places.keys()
        for share, documents in self._tables:
            factor = share * weight
            # Where there are few, to look at each costs less than to find those of both.
            for number in documents if len(documents) < _FEW else documents.keys() & wanted:
                if number in places:
                    place = places[number]
                    more = documents[number] * factor
                    if more > column[place]:
                        column[place] = more
        return column


@dataclass(frozen=True, slots=True)
class _Relatives:
    """The terms of a family that there are, with their share, and where any of them counts much."""

    terms: Sequence[tuple[int, float]]
    tables: Sequence[_Table]
    much: int
    level: int


class _Kept(dict[_Key, _Value]):
    """What a function gives, worked out when it is asked for first."""

    def __init__(self, work: Callable[[_Key], _Value]) -> None:
        self._work = work

    def __missing__(self, key: _Key) -> _Value:
        value = self[key] = self._work(key)
        return value


class View:
    """Statistics and concepts over some documents of the postings. Good until these change."""

    def __init__(self, postings: Postings, allowed: Collection[int] | None, nearby: Nearby) -> None:
        postings.settle()
        self._postings = postings
        self._nearby = nearby
        self._allowed = None if allowed is None else bits(allowed)
        self._count = postings.count if self._allowed is None else self._allowed.bit_count()
        self._rarities = _Kept(self._rarity)
        self._concepts: dict[tuple[str | bool, ...], Concept | None] = {}
        self._relatives = _Kept(self._relatives_of)
        self._lengths = _Kept(self._length)

    def knows(self, text: str) -> bool:
        """Whether any allowed tool has the term."""
        place = self._postings.vocabulary.get(text)
        return place is not None and self._rarities[place] > 0.0

    def concept(self, term: str, kin: bool, guess: bool) -> Concept | None:
        """What a term of a query stands for here; None where it stands for nothing.

        ``kin`` has its relatives count beside itself, ``guess`` allows it to be misspelt or unfinished.
        """
        place = self._postings.vocabulary.get(term)
        known = place is not None and self._rarities[place] > 0.0
        key = (term, kin) if known else (term, guess, "unknown")
        try:
            return self._concepts[key]
        except KeyError:
            if len(self._concepts) > _CONCEPTS_KEPT:
                self._concepts.clear()
            own = [(place, 1.0)] if place is not None and known else self._stand_ins(term, guess)
            relatives = [self._relatives[family] for family in families(term)] if known and kin else []
            found = self._concepts[key] = self._concept(own, relatives, kin) if own else None
            return found

    def covers(self, numbers: Iterable[int], have: Mapping[int, float]) -> list[float]:
        """The share of each document's name, 0 to 1, that some terms cover; a rare term is more of it."""
        names, rarities, lengths = self._postings.names, self._rarities, self._lengths
        found: list[float] = []
        for number in numbers:
            covered = 0.0
            for place in names[number]:
                if place in have:
                    covered += rarities[place] * have[place]
            found.append(covered / lengths[number] if covered else 0.0)
        return found

    def _concept(self, own: list[tuple[int, float]], kin: list[_Relatives], heavy: bool) -> Concept:
        tables: list[_Table] = []
        levels: dict[int, int] = {}
        fine = _LEVELS if heavy else _LEVELS * _LIGHT
        for place, share in own:
            posting = self._postings.lists[place]
            factor = self._rarities[place] * share
            tables.append((factor, posting.documents))
            level = int(fine * factor) + 1
            levels[level] = levels.get(level, 0) | posting.much
            level = int(fine * _LITTLE * factor) + 1
            levels[level] = levels.get(level, 0) | posting.present
        for relatives in kin:
            own += relatives.terms
            tables += [table for table in relatives.tables if table[1] is not tables[0][1]]
            levels[relatives.level] = levels.get(relatives.level, 0) | relatives.much
        if self._allowed is not None:
            levels = {level: documents & self._allowed for level, documents in levels.items()}
        return Concept(own, tables, planes(levels))

    def _rarity(self, place: int) -> float:
        """A term's inverse document frequency, 0 where no allowed document has it."""
        posting = self._postings.lists[place]
        held = len(posting.documents)
        if self._allowed is not None:
            held = (posting.present & self._allowed).bit_count()
        return math.log(1 + (self._count - held + 0.5) / (held + 0.5)) if held else 0.0

    def _length(self, number: int) -> float:
        """What the rarities of a document's name come to."""
        return sum(map(self._rarities.__getitem__, self._postings.names[number])) + _NAME_EASE

    def _relatives_of(self, family: Family) -> _Relatives:
        lists, rarities = self._postings.lists, self._rarities
        places = self._known(family)
        much = 0
        for place in places:
            much |= lists[place].much
        tables = [(_RELATED * rarities[place], lists[place].documents) for place in places]
        level = int(_LEVELS * sum(factor for factor, _ in tables) / len(tables)) + 1
        return _Relatives([(place, _RELATED) for place in places], tables, much, level)

    def _known(self, terms: Iterable[str]) -> list[int]:
        """The places of those terms that any allowed tool has."""
        vocabulary, rarities = self._postings.vocabulary, self._rarities
        places = [vocabulary[term] for term in terms if term in vocabulary]
        return [place for place in places if rarities[place]]

    def _stand_ins(self, term: str, guess: bool) -> list[tuple[int, float]]:
        """The places of the terms that may stand for one that nobody has, each once, with its share."""
        relatives = dict.fromkeys(chain.from_iterable(families(term)))
        found = [(place, _RELATED_UNKNOWN) for place in self._known(relatives)]
        if not found:
            found = [(place, _SPLIT) for place in self._halves(term)]
        if not found and guess:
            rarities = self._rarities
            near = self._nearby.find(term, lambda place: rarities[place] > 0.0)
            found = [(place, _NEAR * sure) for place, sure in near]
        return found

    def _halves(self, text: str) -> Iterable[int]:
        """A word written together that the catalogue writes apart."""
        for at in range(_SHORTEST_HALF, len(text) - _SHORTEST_HALF + 1):
            if self.knows(text[:at]) and self.knows(text[at:]):
                return self._known(dict.fromkeys((text[:at], text[at:])))
        return ()
