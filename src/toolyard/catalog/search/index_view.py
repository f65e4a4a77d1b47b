"""View of the search index restricted to the tools visible to one caller, and the ranking of its documents.

Term statistics are computed over the visible documents only. A search in a view therefore equals a search in
an index of just these tools, and ranks reveal nothing about hidden ones.

Ranking has two passes. The first adds up the query's terms for all documents at once, in powers of two, and
selects about two dozen candidates (see ``postings.select_highest``). The second computes exact scores of
these candidates only, from the term weights, the share of the tool's name that the query covers, and the best
score in any single clause. Exact scores of every document with a common word would cost more than everything
else together; the candidates of the coarse pass give the same recall within the accuracy of our measurements
(decision 0014).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from math import log, log2
from operator import mul

from toolyard.catalog.search.fuzzy import FuzzyMatcher
from toolyard.catalog.search.postings import (
    Posting,
    Postings,
    add_to_counters,
    bitset_members,
    select_highest,
    to_bitset,
)
from toolyard.catalog.search.query import ParsedQuery
from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.synonyms import SynonymGroup, find_synonym_groups

__all__ = ["ExpandedQueryTerm", "IndexView", "rank_documents"]


_SYNONYM_WEIGHT = 0.25
"""Weight of a synonym when the query's own word is indexed as well."""
_SUBSTITUTE_WEIGHT = 0.7
"""Weight of a synonym when the query's own word is not indexed."""
_FUZZY_WEIGHT = 0.9
_SPLIT_WORD_WEIGHT = 0.8
_MIN_HALF_CHARS = 3
_MIN_JOINED_CHARS = 6
_STEPS_PER_UNIT = 3.0
"""Resolution of the coarse counters: steps per unit of score."""
_WEAK_MATCH_SHARE = 0.4
"""Share of a term's score that a document gets in which the term has a low weight."""
_WEAK_WORD_SHARE = 0.35
"""Approximate query weight of words looked up without synonyms."""
_NAME_SMOOTHING = 1.0
"""Added to the rarity of a name, so that a name of one common word is never covered completely."""
_COVERAGE_UNITS = 4_096
"""Units in which the coverage of a name is counted. Sums of integers do not depend on their order, unlike
sums of floats, and the order of a set intersection varies between processes."""
_MAX_CONCEPT_CACHE_BYTES = 16_000_000
"""Approximate maximum size of the concepts cached in one view."""

_BYTES_PER_CONCEPT = 500

_WeightedTerm = tuple[str, float]
"""A term and its score factor: its inverse document frequency times its share."""


class ExpandedQueryTerm:
    """A query term with the indexed terms that match it. A document scores with the best of these terms.

    ``terms`` are the matching terms with their factors, for exact scores. ``steps`` approximate the same
    scores for the coarse counters: pairs ``(exponent, documents)``, see ``add_to_counters``.
    """

    __slots__ = ("steps", "terms")

    def __init__(self, terms: Sequence[_WeightedTerm], steps: Sequence[tuple[int, int]]) -> None:
        self.terms = terms
        self.steps = steps


@dataclass(frozen=True, slots=True)
class _KnownSynonyms:
    """Terms of a synonym group that are indexed, and the documents in which any of them has a high weight."""

    terms: Sequence[_WeightedTerm]
    strong_documents: int
    level: float


class _InverseFrequencies(dict[str, float]):
    """Inverse document frequency of each term among the allowed documents; 0 if none of them contains it.

    Computed at first lookup (``__missing__``), because most terms are never searched for.
    """

    def __init__(
        self, posting_by_term: Mapping[str, Posting], document_count: int, allowed: int | None
    ) -> None:
        self._posting_by_term = posting_by_term
        self._document_count = document_count
        self._allowed = allowed

    def __missing__(self, term: str) -> float:
        posting = self._posting_by_term.get(term)
        if posting is None:
            return 0.0
        count = posting.document_count
        if self._allowed is not None:
            count = (posting.present & self._allowed).bit_count()
        # The inverse document frequency of BM25.
        frequency = log(1 + (self._document_count - count + 0.5) / (count + 0.5)) if count else 0.0
        self[term] = frequency
        return frequency


class IndexView:
    """Term statistics and cached concepts over the allowed documents. Invalid after the postings change."""

    def __init__(
        self, postings: Postings, allowed: Collection[int] | None, fuzzy_matcher: FuzzyMatcher
    ) -> None:
        postings.flush_pending()
        self._postings = postings
        self._fuzzy_matcher = fuzzy_matcher
        self._allowed = None if allowed is None else to_bitset(allowed)
        count = postings.count if self._allowed is None else self._allowed.bit_count()
        self._inverse_frequencies = _InverseFrequencies(postings.posting_by_term, count, self._allowed)
        self._concepts: dict[str | tuple[str | bool, ...], ExpandedQueryTerm | None] = {}
        # A concept has about two bitsets of one bit per document.
        self._max_concepts = _MAX_CONCEPT_CACHE_BYTES // (_BYTES_PER_CONCEPT + len(postings.documents) // 4)
        self._known_synonyms: dict[SynonymGroup, _KnownSynonyms] = {}
        self._name_lengths: dict[int, float] = {}

    def has_term(self, term: str) -> bool:
        """Return True if an allowed document contains the term."""
        return self._inverse_frequencies[term] > 0.0

    def find_joined_term(self, words: str) -> str | None:
        """Return the term for two joined words ("web hook" as "webhook"), None if no allowed tool has it."""
        if not self._postings.may_have_stem(words):
            return None
        term = stem(words)
        return term if len(term) >= _MIN_JOINED_CHARS and self._inverse_frequencies[term] > 0.0 else None

    def find_concept(self, term: str, with_synonyms: bool, allow_fuzzy: bool) -> ExpandedQueryTerm | None:
        """Return the indexed terms that match a query term, None if there are none.

        ``with_synonyms`` adds its synonyms; ``allow_fuzzy`` also matches misspelt or incomplete words.
        """
        # Only the options that change the result are part of the key: synonyms are ignored for unknown terms,
        # and known terms are never matched fuzzily.
        known = self._inverse_frequencies[term] > 0.0
        key = (term, allow_fuzzy) if not known else term if with_synonyms else (term,)
        try:
            return self._concepts[key]
        except KeyError:
            # Clearing all is cheaper than tracking the order of use, and a full cache is rare: it takes as
            # many different query words.
            if len(self._concepts) >= self._max_concepts:
                self._concepts.clear()
            matches = [(term, 1.0)] if known else self._find_substitutes(term, allow_fuzzy)
            synonyms = (
                [self._find_known_synonyms(group) for group in find_synonym_groups(term)]
                if known and with_synonyms
                else []
            )
            concept = self._expand_term(matches, synonyms, with_synonyms) if matches else None
            self._concepts[key] = concept
            return concept

    def score_documents(
        self, numbers: Iterable[int], concepts: Sequence[tuple[float, ExpandedQueryTerm]]
    ) -> tuple[list[list[float]], list[float]]:
        """Return the exact scores of some documents, and the share of each document's name that is covered.

        ``concepts`` are pairs of a query weight and a concept. The first list has one row per document with
        the score of each concept; the second has values from 0 to 1, in which rare terms of a name count for
        more.
        """
        # By term: the concept (column) to which it contributes most, and its factor there. The few terms that
        # match several concepts have their further columns in ``others``, so that the loop over documents
        # does one lookup for all other terms.
        best_columns: dict[str, tuple[int, float]] = {}
        others: dict[str, list[tuple[int, float]]] = {}
        for column, (weight, concept) in enumerate(concepts):
            for term, factor in concept.terms:
                entry = (column, factor * weight)
                if term not in best_columns:
                    best_columns[term] = entry
                    continue
                if entry[1] > best_columns[term][1]:
                    entry, best_columns[term] = best_columns[term], entry
                others.setdefault(term, []).append(entry)
        documents, lengths = self._postings.documents, self._name_lengths
        terms, empty_row = best_columns.keys(), [0.0] * len(concepts)
        rows: list[list[float]] = []
        shares: list[float] = []
        for number in numbers:
            row = empty_row.copy()
            covered = 0
            weights = documents[number]
            for term in weights.keys() & terms:
                column, score = best_columns[term]
                weight = weights[term]
                if weight < 0.0:  # a term of the name, see ``Postings.documents``
                    weight = -weight
                    covered += int(score * _COVERAGE_UNITS)
                score *= weight
                if score > row[column]:
                    row[column] = score
                if term in others:
                    for column, score in others[term]:
                        score *= weight
                        if score > row[column]:
                            row[column] = score
            rows.append(row)
            shares.append(covered / (lengths.get(number) or self._name_length(number)) if covered else 0.0)
        return rows, shares

    def _name_length(self, number: int) -> float:
        """Return the summed inverse document frequencies of a name's terms, in coverage units."""
        frequencies = self._inverse_frequencies
        length = sum([frequencies[term] for term in self._postings.names[number]], _NAME_SMOOTHING)
        self._name_lengths[number] = length = length * _COVERAGE_UNITS
        return length

    def _expand_term(
        self, matches: Iterable[_WeightedTerm], synonyms: Iterable[_KnownSynonyms], is_important: bool
    ) -> ExpandedQueryTerm:
        terms: list[_WeightedTerm] = []
        steps: list[tuple[int, int]] = []
        steps_per_unit = _STEPS_PER_UNIT if is_important else _STEPS_PER_UNIT * _WEAK_WORD_SHARE
        # A document scores with the best matching term only. The counters can only add, so each document gets
        # steps from the first term that it contains; matches come best first, synonyms last.
        counted = 0
        for term, share in matches:
            posting = self._postings.posting_by_term[term]
            factor = self._inverse_frequencies[term] * share
            terms.append((posting.term, factor))
            present, strong = posting.present, posting.strong_documents
            if counted:
                present &= ~counted
                strong &= ~counted
            counted |= present
            level = steps_per_unit * factor
            # Two steps approximate the weight of the term in a document: low in all, high in the strong ones.
            steps.append((_nearest_power_of_two(level * _WEAK_MATCH_SHARE), present))
            if strong:
                steps.append((_nearest_power_of_two(level - level * _WEAK_MATCH_SHARE), strong))
        for group in synonyms:
            terms += group.terms
            uncounted = group.strong_documents & ~counted
            counted |= uncounted
            if uncounted:
                steps.append((_nearest_power_of_two(group.level), uncounted))
        if self._allowed is not None:
            steps = [(step, documents & self._allowed) for step, documents in steps]
        return ExpandedQueryTerm(terms, steps)

    def _find_known_synonyms(self, group: SynonymGroup) -> _KnownSynonyms:
        synonyms = self._known_synonyms.get(group)
        if synonyms is None:
            known = self._filter_known_terms(group)
            strong = 0
            for term in known:
                strong |= self._postings.posting_by_term[term].strong_documents
            terms = [(term, _SYNONYM_WEIGHT * self._inverse_frequencies[term]) for term in known]
            level = _STEPS_PER_UNIT * sum(factor for _, factor in terms) / len(terms)
            synonyms = self._known_synonyms[group] = _KnownSynonyms(terms, strong, level)
        return synonyms

    def _filter_known_terms(self, terms: Iterable[str]) -> list[str]:
        """Return the terms that occur in an allowed document."""
        postings, frequencies = self._postings.posting_by_term, self._inverse_frequencies
        return [postings[term].term for term in terms if frequencies[term]]

    def _find_substitutes(self, term: str, allow_fuzzy: bool) -> list[_WeightedTerm]:
        """Return replacements for a term that is not indexed: synonyms, else halves, else similar terms."""
        # From sure to unsure, and the first that finds anything ends the search: a misspelling is looked for
        # only if the word is not a known one in another form.
        if groups := find_synonym_groups(term):
            synonyms = self._filter_known_terms(dict.fromkeys(chain.from_iterable(groups)))
            if synonyms:
                return [(synonym, _SUBSTITUTE_WEIGHT) for synonym in synonyms]
        if halves := self._split_compound(term):
            return [(half, _SPLIT_WORD_WEIGHT) for half in halves]
        if not allow_fuzzy:
            return []
        return [
            (similar, _FUZZY_WEIGHT * confidence)
            for similar, confidence in self._fuzzy_matcher.find(term, self.has_term)
        ]

    def _split_compound(self, text: str) -> list[str]:
        """Return the two indexed terms of a compound ("codereview"), empty if there is no such split."""
        postings = self._postings.posting_by_term
        for position in range(_MIN_HALF_CHARS, len(text) - _MIN_HALF_CHARS + 1):
            halves = (text[:position], text[position:])
            if halves[0] in postings and halves[1] in postings and all(map(self.has_term, halves)):
                return self._filter_known_terms(dict.fromkeys(halves))
        return []


def _nearest_power_of_two(level: float) -> int:
    """Return the exponent of the power of two nearest to ``level`` (on a logarithmic scale), at least 0."""
    return max(0, round(log2(level))) if level > 0.0 else 0


_COUNTER_BITS = 16
"""Number of counter planes: enough for the sum of all terms of the longest query."""
_MAX_CANDIDATES = 18
_MAX_CLAUSE_CANDIDATES = 24
"""Maximum number of candidates for a query of several clauses, each of which may need another tool."""
_MIN_CANDIDATES_WITHOUT_TIES = 10
"""Number of candidates from which documents tied at the cut-off are left out.

Ties can be hundreds of documents that share one common word; sorting them by name is only worth it when there
are few better candidates.
"""
_NAME_COVERAGE_WEIGHT = 0.5
_CLAUSE_SCORE_SHARE = 0.5
_PAIR_FACTOR = 0.8
_MAX_FUZZY_QUERY_TERMS = 12
"""Number of query terms up to which fuzzy matching is tried. Longer queries match by their other words."""
_MIN_SYNONYM_TERM_WEIGHT = 0.5
"""Query weight below which the synonyms of a word are ignored."""

_MatchedTerm = tuple[str, float, ExpandedQueryTerm]
"""A query term, its weight in the query, and the indexed terms that match it."""


def rank_documents(
    view: IndexView, query: ParsedQuery, minimum: int, names: Mapping[int, str]
) -> dict[int, float]:
    """Return the scores of the best documents by number: ``minimum`` or more, if as many match.

    Scores are relative to the best document, which has about 1. ``names`` decides between documents that are
    tied at the cut-off: the first by name are taken, so that the result does not depend on insertion order.
    """
    matched = _match_terms(view, query)
    if not matched:
        return {}
    maximum = _MAX_CLAUSE_CANDIDATES if query.clauses else _MAX_CANDIDATES
    candidates = _select_candidates(matched, minimum, max(maximum, minimum), names)
    rows, name_coverage = view.score_documents(
        candidates, [(weight, concept) for _, weight, concept in matched]
    )
    name_factors = [1 + _NAME_COVERAGE_WEIGHT * share for share in name_coverage]
    scores = list(map(mul, map(sum, rows), name_factors))
    top = max(scores)
    if not query.clauses:
        return {number: score / top for number, score in zip(candidates, scores, strict=True)}
    # A long request often names several tasks. A tool that answers one clause well must not lose against
    # tools that contain a little of every clause, so half of the score is the best score in a single clause.
    clause_scores = [0.0] * len(candidates)
    columns = dict(zip([term for term, *_ in matched], zip(*rows, strict=True), strict=True))
    for clause in query.clauses:
        clause_columns = [columns[term] for term in clause if term in columns]
        if not clause_columns:
            continue
        sums = list(map(mul, map(sum, zip(*clause_columns, strict=True)), name_factors))
        highest = max(sums)
        if highest > 0.0:
            # The square root lets the best tool of a clause with few or common words score nearly as high as
            # that of a specific clause, but not quite.
            scale = (highest / top) ** 0.5 / highest
            clause_scores = [
                best if best > (new := scale * score) else new
                for best, score in zip(clause_scores, sums, strict=True)
            ]
    return {
        number: (1 - _CLAUSE_SCORE_SHARE) * score / top + _CLAUSE_SCORE_SHARE * clause_score
        for number, score, clause_score in zip(candidates, scores, clause_scores, strict=True)
    }


def _match_terms(view: IndexView, query: ParsedQuery) -> list[_MatchedTerm]:
    """Return the query terms that match anything in the view, including joined pairs of words."""
    is_short = len(query.weights) <= _MAX_FUZZY_QUERY_TERMS
    matched: list[_MatchedTerm] = []
    for term, weight in query.weights.items():
        concept = view.find_concept(
            term, weight >= _MIN_SYNONYM_TERM_WEIGHT, is_short and term not in query.values
        )
        if concept is not None:
            matched.append((term, weight, concept))
    joined = {view.find_joined_term(words): weight for words, weight in query.pairs.items()}
    for term, weight in joined.items():
        if term is not None and term not in query.weights:
            concept = view.find_concept(term, True, True)
            if concept is not None:
                matched.append((term, _PAIR_FACTOR * weight, concept))
    return matched


def _select_candidates(
    matched: Iterable[_MatchedTerm], minimum: int, maximum: int, names: Mapping[int, str]
) -> list[int]:
    # Scoring every document in Python would be slow for thousands of tools. Each plane is an integer with one
    # bit per document, and bit n of all planes is the counter of document n: one addition of a step to all
    # documents that contain a term costs a few operations on large integers. The counters are approximate;
    # only the selected candidates are scored exactly.
    planes = [0] * _COUNTER_BITS
    for *_, concept in matched:
        add_to_counters(planes, concept.steps)
    selected, tied = select_highest(planes, maximum)
    numbers = bitset_members(selected)
    if len(numbers) >= max(_MIN_CANDIDATES_WITHOUT_TIES, minimum) or not tied:
        return numbers
    # By name and not by number: numbers follow the order in which servers were added, which must not decide.
    return numbers + nsmallest(maximum - len(numbers), bitset_members(tied), key=names.__getitem__)
