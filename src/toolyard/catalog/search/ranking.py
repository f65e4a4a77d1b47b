"""The best tools for a query, out of a view.

First a sum over all terms, in coarse steps, picks candidates. Then these are weighed: what each term counts
there, how much of a tool's name the query covers, and how well the tool answers a single clause.
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
"""More than the sum of all terms of a query has binary digits."""
_MAX_CANDIDATES = 18
_MAX_CLAUSE_CANDIDATES = 24
_MIN_CANDIDATES_WITHOUT_TIES = 10
"""Candidates from which on those at the border, which are equal, are left out altogether."""
_NAME_COVERAGE_WEIGHT = 0.5
_CLAUSE_SCORE_SHARE = 0.5
_PAIR_FACTOR = 0.8
_MAX_FUZZY_QUERY_TERMS = 12
"""Terms of a query up to which misspellings are supposed; a longer one says enough."""
_MIN_SYNONYM_TERM_WEIGHT = 0.5
"""Of a word that counts for less than this the relatives are left out."""

_MatchedTerm = tuple[str, float, Concept]
"""A term, its weight, and what it stands for."""


def rank_documents(
    view: IndexView, query: ParsedQuery, minimum: int, names: Mapping[int, str]
) -> dict[int, float]:
    """The scores of the best documents, at least this many where so many match; 1 is about the best.

    Of documents that are equal the first by name are taken.
    """
    found = _match_terms(view, query)
    if not found:
        return {}
    most = _MAX_CLAUSE_CANDIDATES if query.clauses else _MAX_CANDIDATES
    candidates = _select_candidates(found, minimum, max(most, minimum), names)
    rows, shares = view.score_documents(candidates, [(weight, concept) for _, weight, concept in found])
    covers = [1 + _NAME_COVERAGE_WEIGHT * share for share in shares]
    scores = list(map(mul, map(sum, rows), covers))
    top = max(scores)
    if not query.clauses:
        return {number: score / top for number, score in zip(candidates, scores, strict=True)}
    best = [0.0] * len(candidates)
    columns = dict(zip([term for term, *_ in found], zip(*rows, strict=True), strict=True))
    for clause in query.clauses:
        mine = [columns[term] for term in clause if term in columns]
        if not mine:
            continue
        sums = list(map(mul, map(sum, zip(*mine, strict=True)), covers))
        highest = max(sums)
        if highest > 0.0:
            share = (highest / top) ** 0.5 / highest
            best = [
                one if one > (new := share * other) else new for one, other in zip(best, sums, strict=True)
            ]
    return {
        number: (1 - _CLAUSE_SCORE_SHARE) * score / top + _CLAUSE_SCORE_SHARE * of_clause
        for number, score, of_clause in zip(candidates, scores, best, strict=True)
    }


def _match_terms(view: IndexView, asked: ParsedQuery) -> list[_MatchedTerm]:
    """What there is of what is asked for, by term."""
    short = len(asked.weights) <= _MAX_FUZZY_QUERY_TERMS
    found: list[_MatchedTerm] = []
    for term, weight in asked.weights.items():
        concept = view.find_concept(
            term, weight >= _MIN_SYNONYM_TERM_WEIGHT, short and term not in asked.values
        )
        if concept is not None:
            found.append((term, weight, concept))
    joined = {view.find_joined_term(words): weight for words, weight in asked.pairs.items()}
    for term, weight in joined.items():
        if term is not None and term not in asked.weights:
            concept = view.find_concept(term, True, True)
            if concept is not None:
                found.append((term, _PAIR_FACTOR * weight, concept))
    return found


def _select_candidates(
    found: Iterable[_MatchedTerm], least: int, most: int, names: Mapping[int, str]
) -> list[int]:
    total = [0] * _COUNTER_BITS
    for *_, concept in found:
        add_to_counters(total, concept.steps)
    sure, equal = select_highest(total, most)
    numbers = bitset_members(sure)
    if len(numbers) >= max(_MIN_CANDIDATES_WITHOUT_TIES, least) or not equal:
        return numbers
    return numbers + nsmallest(most - len(numbers), bitset_members(equal), key=names.__getitem__)
