"""Ranking of the documents of a view for a query, in two passes.

The first pass adds up the query's terms for all documents at once, in powers of two, and selects about two
dozen candidates (see ``bit_counters``). The second pass computes exact scores of these candidates only, from
the term weights, the share of the tool's name that the query covers, and the best score in any single clause.
Exact scores of every document with a common word would cost more than everything else together; the
candidates of the coarse pass give the same recall within the accuracy of our measurements (decision 0014,
"Search counts in bits").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from operator import mul

from toolyard.catalog.search.bit_counters import add_to_counters, bitset_members, select_highest
from toolyard.catalog.search.index_view import Concept, IndexView
from toolyard.catalog.search.query import ParsedQuery

__all__ = ["rank_documents"]

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

_MatchedTerm = tuple[str, float, Concept]
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
    planes = [0] * _COUNTER_BITS
    for *_, concept in matched:
        add_to_counters(planes, concept.steps)
    selected, tied = select_highest(planes, maximum)
    numbers = bitset_members(selected)
    if len(numbers) >= max(_MIN_CANDIDATES_WITHOUT_TIES, minimum) or not tied:
        return numbers
    return numbers + nsmallest(maximum - len(numbers), bitset_members(tied), key=names.__getitem__)
