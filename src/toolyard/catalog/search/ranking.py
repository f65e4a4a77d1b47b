"""The best tools for a query, out of a view.

First a sum over all terms, in coarse steps, picks candidates. Then these are weighed: what each term counts
there, how much of a tool's name the query covers, and how well the tool answers a single clause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from operator import mul

from toolyard.catalog.search.bit_counters import add, best, members
from toolyard.catalog.search.index_view import Concept, View
from toolyard.catalog.search.query import Asked

__all__ = ["rank"]

_PLANES = 16
"""More than the sum of all terms of a query has binary digits."""
_CANDIDATES = 18
_CANDIDATES_OF_CLAUSES = 24
_ENOUGH = 10
"""Candidates from which on those at the border, which are equal, are left out altogether."""
_COVER = 0.5
_CLAUSES = 0.5
_PAIR = 0.8
_GUESSED = 12
"""Terms of a query up to which misspellings are supposed; a longer one says enough."""
_WEAKEST = 0.5
"""Of a word that counts for less than this the relatives are left out."""

_Found = tuple[str, float, Concept]
"""A term, its weight, and what it stands for."""


def rank(view: View, asked: Asked, least: int, names: Mapping[int, str]) -> dict[int, float]:
    """The scores of the best documents, at least this many where so many match; 1 is about the best.

    Of documents that are equal the first by name are taken.
    """
    found = _found(view, asked)
    if not found:
        return {}
    most = _CANDIDATES_OF_CLAUSES if asked.clauses else _CANDIDATES
    candidates = _candidates(found, least, max(most, least), names)
    rows, shares = view.weigh(candidates, [(weight, concept) for _, weight, concept in found])
    covers = [1 + _COVER * share for share in shares]
    scores = list(map(mul, map(sum, rows), covers))
    top = max(scores)
    if not asked.clauses:
        return {number: score / top for number, score in zip(candidates, scores, strict=True)}
    best = [0.0] * len(candidates)
    columns = dict(zip([term for term, *_ in found], zip(*rows, strict=True), strict=True))
    for clause in asked.clauses:
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
        number: (1 - _CLAUSES) * score / top + _CLAUSES * of_clause
        for number, score, of_clause in zip(candidates, scores, best, strict=True)
    }


def _found(view: View, asked: Asked) -> list[_Found]:
    """What there is of what is asked for, by term."""
    short = len(asked.weights) <= _GUESSED
    found: list[_Found] = []
    for term, weight in asked.weights.items():
        concept = view.concept(term, weight >= _WEAKEST, short and term not in asked.values)
        if concept is not None:
            found.append((term, weight, concept))
    joined = {view.joined(words): weight for words, weight in asked.pairs.items()}
    for term, weight in joined.items():
        if term is not None and term not in asked.weights:
            concept = view.concept(term, True, True)
            if concept is not None:
                found.append((term, _PAIR * weight, concept))
    return found


def _candidates(found: Iterable[_Found], least: int, most: int, names: Mapping[int, str]) -> list[int]:
    total = [0] * _PLANES
    for *_, concept in found:
        add(total, concept.steps)
    sure, equal = best(total, most)
    numbers = members(sure)
    if len(numbers) >= max(_ENOUGH, least) or not equal:
        return numbers
    return numbers + nsmallest(most - len(numbers), members(equal), key=names.__getitem__)
