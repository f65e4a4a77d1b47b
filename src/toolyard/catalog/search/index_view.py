"""What the postings say of the tools that a caller may know of.

How rare a word is counts only among these, so that a search among some tools is a search in an index of only
those, and nothing hidden shows through a rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log, log2

from toolyard.catalog.search.bit_counters import to_bitset
from toolyard.catalog.search.fuzzy import FuzzyMatcher
from toolyard.catalog.search.postings import Posting, Postings
from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.synonyms import SynonymGroup, find_synonym_groups

__all__ = ["Concept", "IndexView"]

_SYNONYM_WEIGHT = 0.25
_SUBSTITUTE_WEIGHT = 0.7
_FUZZY_WEIGHT = 0.9
_SPLIT_WORD_WEIGHT = 0.8
_MIN_HALF_CHARS = 3
_MIN_JOINED_CHARS = 6
_STEPS_PER_UNIT = 3.0
"""Steps in which a concept's share of a sum is counted, for each unit of it."""
_WEAK_MATCH_SHARE = 0.4
_WEAK_WORD_SHARE = 0.35
"""About what a word counts whose relatives do not count."""
_NAME_SMOOTHING = 1.0
"""What a name's rarities are added to, so that one of a single common word is never wholly covered."""
_COVERAGE_UNITS = 4_096
"""Parts in which a name's cover is counted: whole numbers, whose sum does not depend on their order."""
_MAX_CONCEPT_CACHE_BYTES = 16_000_000
"""About how much the concepts of a view may take."""

_BYTES_PER_CONCEPT = 500

_WeightedTerm = tuple[str, float]
"""A term, and what it counts: how rare it is, times its share."""


class Concept:
    """A term that was asked for, with the terms that may stand for it; a document counts the best of them.

    ``terms`` are these with what they count. ``steps`` are about what the concept adds to each document: two
    to the power of a number, and the documents that get it.
    """

    __slots__ = ("steps", "terms")

    def __init__(self, terms: Sequence[_WeightedTerm], steps: Sequence[tuple[int, int]]) -> None:
        self.terms = terms
        self.steps = steps


@dataclass(frozen=True, slots=True)
class _KnownSynonyms:
    """The terms of a family that there are, and where any of them counts much."""

    terms: Sequence[_WeightedTerm]
    strong_documents: int
    level: float


class _InverseFrequencies(dict[str, float]):
    """Each term's inverse document frequency among the allowed documents, 0 where none of them has it."""

    def __init__(self, lists: Mapping[str, Posting], count: int, allowed: int | None) -> None:
        self._posting_by_term = lists
        self._document_count = count
        self._allowed = allowed

    def __missing__(self, term: str) -> float:
        posting = self._posting_by_term.get(term)
        if posting is None:
            return 0.0
        held = posting.held
        if self._allowed is not None:
            held = (posting.present & self._allowed).bit_count()
        rarity = self[term] = log(1 + (self._document_count - held + 0.5) / (held + 0.5)) if held else 0.0
        return rarity


class IndexView:
    """Statistics and concepts over some documents of the postings. Good until these change."""

    def __init__(
        self, postings: Postings, allowed: Collection[int] | None, fuzzy_matcher: FuzzyMatcher
    ) -> None:
        postings.flush_pending()
        self._postings = postings
        self._fuzzy_matcher = fuzzy_matcher
        self._allowed = None if allowed is None else to_bitset(allowed)
        count = postings.count if self._allowed is None else self._allowed.bit_count()
        self._inverse_frequencies = _InverseFrequencies(postings.posting_by_term, count, self._allowed)
        self._concepts: dict[str | tuple[str | bool, ...], Concept | None] = {}
        self._max_concepts = _MAX_CONCEPT_CACHE_BYTES // (_BYTES_PER_CONCEPT + len(postings.documents) // 4)
        self._known_synonyms: dict[SynonymGroup, _KnownSynonyms] = {}
        self._name_lengths: dict[int, float] = {}

    def has_term(self, term: str) -> bool:
        """Whether any allowed tool has the term."""
        return self._inverse_frequencies[term] > 0.0

    def find_joined_term(self, words: str) -> str | None:
        """The term that two words are which are written together here, None where no allowed tool has it."""
        if not self._postings.may_have_stem(words):
            return None
        term = stem(words)
        return term if len(term) >= _MIN_JOINED_CHARS and self._inverse_frequencies[term] > 0.0 else None

    def find_concept(self, term: str, with_synonyms: bool, allow_fuzzy: bool) -> Concept | None:
        """What a term of a query stands for here; None where it stands for nothing.

        ``kin`` has its relatives count beside itself, ``guess`` allows it to be misspelt or unfinished.
        """
        known = self._inverse_frequencies[term] > 0.0
        key = (term, allow_fuzzy) if not known else term if with_synonyms else (term,)
        try:
            return self._concepts[key]
        except KeyError:
            if len(self._concepts) >= self._max_concepts:
                self._concepts.clear()
            own = [(term, 1.0)] if known else self._find_substitutes(term, allow_fuzzy)
            relatives = (
                [self._find_known_synonyms(family) for family in find_synonym_groups(term)]
                if known and with_synonyms
                else []
            )
            found = self._concepts[key] = self._build_concept(own, relatives, with_synonyms) if own else None
            return found

    def score_documents(
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
        documents, lengths = self._postings.documents, self._name_lengths
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
                    covered += int(most * _COVERAGE_UNITS)
                most *= weight
                if most > row[column]:
                    row[column] = most
                if term in others:
                    for column, most in others[term]:
                        most *= weight
                        if most > row[column]:
                            row[column] = most
            rows.append(row)
            shares.append(covered / (lengths.get(number) or self._name_length(number)) if covered else 0.0)
        return rows, shares

    def _name_length(self, number: int) -> float:
        """What the rarities of a document's name come to."""
        rarities = self._inverse_frequencies
        length = sum([rarities[term] for term in self._postings.names[number]], _NAME_SMOOTHING)
        self._name_lengths[number] = length = length * _COVERAGE_UNITS
        return length

    def _build_concept(
        self, own: Iterable[_WeightedTerm], kin: Iterable[_KnownSynonyms], heavy: bool
    ) -> Concept:
        terms: list[_WeightedTerm] = []
        steps: list[tuple[int, int]] = []
        fine = _STEPS_PER_UNIT if heavy else _STEPS_PER_UNIT * _WEAK_WORD_SHARE
        taken = 0
        for term, share in own:
            posting = self._postings.posting_by_term[term]
            factor = self._inverse_frequencies[term] * share
            terms.append((posting.term, factor))
            present, much = posting.present, posting.strong_documents
            if taken:
                present &= ~taken
                much &= ~taken
            taken |= present
            level = fine * factor
            steps.append((_nearest_power_of_two(level * _WEAK_MATCH_SHARE), present))
            if much:
                steps.append((_nearest_power_of_two(level - level * _WEAK_MATCH_SHARE), much))
        for relatives in kin:
            terms += relatives.terms
            new = relatives.strong_documents & ~taken
            taken |= new
            if new:
                steps.append((_nearest_power_of_two(relatives.level), new))
        if self._allowed is not None:
            steps = [(step, documents & self._allowed) for step, documents in steps]
        return Concept(terms, steps)

    def _find_known_synonyms(self, family: SynonymGroup) -> _KnownSynonyms:
        found = self._known_synonyms.get(family)
        if found is None:
            known = self._filter_known_terms(family)
            much = 0
            for term in known:
                much |= self._postings.posting_by_term[term].strong_documents
            terms = [(term, _SYNONYM_WEIGHT * self._inverse_frequencies[term]) for term in known]
            level = _STEPS_PER_UNIT * sum(factor for _, factor in terms) / len(terms)
            found = self._known_synonyms[family] = _KnownSynonyms(terms, much, level)
        return found

    def _filter_known_terms(self, terms: Iterable[str]) -> list[str]:
        """Those terms that any allowed tool has."""
        lists, rarities = self._postings.posting_by_term, self._inverse_frequencies
        return [lists[term].term for term in terms if rarities[term]]

    def _find_substitutes(self, term: str, guess: bool) -> list[_WeightedTerm]:
        """The terms that may stand for one that nobody has, each once, with its share."""
        if relatives := find_synonym_groups(term):
            found = self._filter_known_terms(dict.fromkeys(chain.from_iterable(relatives)))
            if found:
                return [(one, _SUBSTITUTE_WEIGHT) for one in found]
        if halves := self._split_compound(term):
            return [(half, _SPLIT_WORD_WEIGHT) for half in halves]
        return (
            [(near, _FUZZY_WEIGHT * sure) for near, sure in self._fuzzy_matcher.find(term, self.has_term)]
            if guess
            else []
        )

    def _split_compound(self, text: str) -> list[str]:
        """A word written together that the catalogue writes apart."""
        lists = self._postings.posting_by_term
        for at in range(_MIN_HALF_CHARS, len(text) - _MIN_HALF_CHARS + 1):
            halves = (text[:at], text[at:])
            if halves[0] in lists and halves[1] in lists and all(map(self.has_term, halves)):
                return self._filter_known_terms(dict.fromkeys(halves))
        return []


def _nearest_power_of_two(level: float) -> int:
    """The power of two that is nearest to a number."""
    return max(0, round(log2(level))) if level > 0.0 else 0
