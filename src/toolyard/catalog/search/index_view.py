"""What the postings say of the tools that a caller may know of.

How rare a word is counts only among these, so that a search among some tools is a search in an index of only
those, and nothing hidden shows through a rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log, log2

from toolyard.catalog.search.bit_counters import bits
from toolyard.catalog.search.fuzzy import Nearby
from toolyard.catalog.search.postings import Posting, Postings
from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.synonyms import Family, families

__all__ = ["Concept", "View"]

_RELATED = 0.25
_RELATED_UNKNOWN = 0.7
_NEAR = 0.9
_SPLIT = 0.8
_SHORTEST_HALF = 3
_SHORTEST_JOINED = 6
_LEVELS = 3.0
"""Steps in which a concept's share of a sum is counted, for each unit of it."""
_LITTLE = 0.4
_LIGHT = 0.35
"""About what a word counts whose relatives do not count."""
_NAME_EASE = 1.0
"""What a name's rarities are added to, so that one of a single common word is never wholly covered."""
_FINENESS = 4_096
"""Parts in which a name's cover is counted: whole numbers, whose sum does not depend on their order."""
_BYTES_KEPT = 16_000_000
"""About how much the concepts of a view may take."""

_CONCEPT_BYTES = 500

_Term = tuple[str, float]
"""A term, and what it counts: how rare it is, times its share."""


class Concept:
    """A term that was asked for, with the terms that may stand for it; a document counts the best of them.

    ``terms`` are these with what they count. ``steps`` are about what the concept adds to each document: two
    to the power of a number, and the documents that get it.
    """

    __slots__ = ("steps", "terms")

    def __init__(self, terms: Sequence[_Term], steps: Sequence[tuple[int, int]]) -> None:
        self.terms = terms
        self.steps = steps


@dataclass(frozen=True, slots=True)
class _Relatives:
    """The terms of a family that there are, and where any of them counts much."""

    terms: Sequence[_Term]
    much: int
    level: float


class _Rarities(dict[str, float]):
    """Each term's inverse document frequency among the allowed documents, 0 where none of them has it."""

    def __init__(self, lists: Mapping[str, Posting], count: int, allowed: int | None) -> None:
        self._lists = lists
        self._count = count
        self._allowed = allowed

    def __missing__(self, term: str) -> float:
        posting = self._lists.get(term)
        if posting is None:
            return 0.0
        held = posting.held
        if self._allowed is not None:
            held = (posting.present & self._allowed).bit_count()
        rarity = self[term] = log(1 + (self._count - held + 0.5) / (held + 0.5)) if held else 0.0
        return rarity


class View:
    """Statistics and concepts over some documents of the postings. Good until these change."""

    def __init__(self, postings: Postings, allowed: Collection[int] | None, nearby: Nearby) -> None:
        postings.settle()
        self._postings = postings
        self._nearby = nearby
        self._allowed = None if allowed is None else bits(allowed)
        count = postings.count if self._allowed is None else self._allowed.bit_count()
        self._rarities = _Rarities(postings.lists, count, self._allowed)
        self._concepts: dict[str | tuple[str | bool, ...], Concept | None] = {}
        self._most = _BYTES_KEPT // (_CONCEPT_BYTES + len(postings.documents) // 4)
        self._relatives: dict[Family, _Relatives] = {}
        self._lengths: dict[int, float] = {}

    def knows(self, term: str) -> bool:
        """Whether any allowed tool has the term."""
        return self._rarities[term] > 0.0

    def joined(self, words: str) -> str | None:
        """The term that two words are which are written together here, None where no allowed tool has it."""
        if not self._postings.has_like(words):
            return None
        term = stem(words)
        return term if len(term) >= _SHORTEST_JOINED and self._rarities[term] > 0.0 else None

    def concept(self, term: str, kin: bool, guess: bool) -> Concept | None:
        """What a term of a query stands for here; None where it stands for nothing.

        ``kin`` has its relatives count beside itself, ``guess`` allows it to be misspelt or unfinished.
        """
        known = self._rarities[term] > 0.0
        key = (term, guess) if not known else term if kin else (term,)
        try:
            return self._concepts[key]
        except KeyError:
            if len(self._concepts) >= self._most:
                self._concepts.clear()
            own = [(term, 1.0)] if known else self._stand_ins(term, guess)
            relatives = [self._relatives_of(family) for family in families(term)] if known and kin else []
            found = self._concepts[key] = self._concept(own, relatives, kin) if own else None
            return found

    def weigh(
        self, numbers: Iterable[int], concepts: Sequence[tuple[float, Concept]]
    ) -> tuple[list[list[float]], list[float]]:
        """What each concept, times its weight, adds to each of some documents; and the share of each one's
        name, 0 to 1, that the concepts cover, where a rare term is more of it.
        """
        wanted: dict[str, tuple[int, float]] = {}
        others: dict[str, list[tuple[int, float]]] = {}
        """Terms that stand for several: all but where they count most."""
        for column, (weight, concept) in enumerate(concepts):
            for term, factor in concept.terms:
                place = (column, factor * weight)
                if term not in wanted:
                    wanted[term] = place
                    continue
                if place[1] > wanted[term][1]:
                    place, wanted[term] = wanted[term], place
                others.setdefault(term, []).append(place)
        documents, lengths = self._postings.documents, self._lengths
        terms, nothing = wanted.keys(), [0.0] * len(concepts)
        rows: list[list[float]] = []
        shares: list[float] = []
        for number in numbers:
            row = nothing.copy()
            covered = 0
            weights = documents[number]
            for term in weights.keys() & terms:
                column, most = wanted[term]
                weight = weights[term]
                if weight < 0.0:
                    weight = -weight
                    covered += int(most * _FINENESS)
                most *= weight
                if most > row[column]:
                    row[column] = most
                if term in others:
                    for column, most in others[term]:
                        most *= weight
                        if most > row[column]:
                            row[column] = most
            rows.append(row)
            shares.append(covered / (lengths.get(number) or self._length(number)) if covered else 0.0)
        return rows, shares

    def _length(self, number: int) -> float:
        """What the rarities of a document's name come to."""
        rarities = self._rarities
        length = sum([rarities[term] for term in self._postings.names[number]], _NAME_EASE)
        self._lengths[number] = length = length * _FINENESS
        return length

    def _concept(self, own: Iterable[_Term], kin: Iterable[_Relatives], heavy: bool) -> Concept:
        terms: list[_Term] = []
        steps: list[tuple[int, int]] = []
        fine = _LEVELS if heavy else _LEVELS * _LIGHT
        taken = 0
        for term, share in own:
            posting = self._postings.lists[term]
            factor = self._rarities[term] * share
            terms.append((posting.term, factor))
            present, much = posting.present, posting.much
            if taken:
                present &= ~taken
                much &= ~taken
            taken |= present
            level = fine * factor
            steps.append((_step(level * _LITTLE), present))
            if much:
                steps.append((_step(level - level * _LITTLE), much))
        for relatives in kin:
            terms += relatives.terms
            new = relatives.much & ~taken
            taken |= new
            if new:
                steps.append((_step(relatives.level), new))
        if self._allowed is not None:
            steps = [(step, documents & self._allowed) for step, documents in steps]
        return Concept(terms, steps)

    def _relatives_of(self, family: Family) -> _Relatives:
        found = self._relatives.get(family)
        if found is None:
            known = self._known(family)
            much = 0
            for term in known:
                much |= self._postings.lists[term].much
            terms = [(term, _RELATED * self._rarities[term]) for term in known]
            level = _LEVELS * sum(factor for _, factor in terms) / len(terms)
            found = self._relatives[family] = _Relatives(terms, much, level)
        return found

    def _known(self, terms: Iterable[str]) -> list[str]:
        """Those terms that any allowed tool has."""
        lists, rarities = self._postings.lists, self._rarities
        return [lists[term].term for term in terms if rarities[term]]

    def _stand_ins(self, term: str, guess: bool) -> list[_Term]:
        """The terms that may stand for one that nobody has, each once, with its share."""
        if relatives := families(term):
            found = self._known(dict.fromkeys(chain.from_iterable(relatives)))
            if found:
                return [(one, _RELATED_UNKNOWN) for one in found]
        if halves := self._halves(term):
            return [(half, _SPLIT) for half in halves]
        return [(near, _NEAR * sure) for near, sure in self._nearby.find(term, self.knows)] if guess else []

    def _halves(self, text: str) -> list[str]:
        """A word written together that the catalogue writes apart."""
        lists = self._postings.lists
        for at in range(_SHORTEST_HALF, len(text) - _SHORTEST_HALF + 1):
            halves = (text[:at], text[at:])
            if halves[0] in lists and halves[1] in lists and all(map(self.knows, halves)):
                return self._known(dict.fromkeys(halves))
        return []


def _step(level: float) -> int:
    """The power of two that is nearest to a number."""
    return max(0, round(log2(level))) if level > 0.0 else 0
