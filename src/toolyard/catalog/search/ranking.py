"""The best tools for a query, out of a view.

First a sum over all terms, in coarse steps, picks candidates. Then these are weighed: what each term counts
there, how much of a tool's name the query covers, and how well the tool answers a single clause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter, mul

from toolyard.catalog.search.bits import add, best, members
from toolyard.catalog.search.query import Asked
from toolyard.catalog.search.view import Concept, View

__all__ = ["rank"]

_CANDIDATES = 24
_COVER = 0.5
_CLAUSES = 0.5
_PAIR = 0.8
_GUESSED = 12
"""Terms of a query up to which misspellings are supposed; a longer one says enough."""
_SHORTEST_PAIR = 6


def rank(view: View, asked: Asked, least: int, names: Mapping[int, str]) -> dict[int, float]:
    """The scores of the best documents, at least this many where so many match; 1 is about the best.

    Of documents that are equal the first by name are taken.
    """
    short = len(asked.weights) <= _GUESSED
    found = [
        (term, concept)
        for term, weight in asked.weights.items()
        if (concept := view.concept(term, weight, short and term not in asked.values)) is not None
    ]
    for text, weight in asked.pairs.items():
        if len(text) >= _SHORTEST_PAIR and text not in asked.weights and view.knows(text):
            concept = view.concept(text, _PAIR * weight)
            if concept is not None:
                found.append((text, concept))
    if not found:
        return {}
    found.sort(key=itemgetter(0))
    concepts = [concept for _, concept in found]
    candidates = _candidates(concepts, least, names)
    places = {number: place for place, number in enumerate(candidates)}
    columns = {term: concept.column(places) for term, concept in found}
    covers = _covers(view, candidates, concepts)
    scores = list(map(mul, map(sum, zip(*columns.values(), strict=True)), covers))
    top = max(scores)
    if not asked.clauses:
        return {number: score / top for number, score in zip(candidates, scores, strict=True)}
    best = [0.0] * len(candidates)
    for clause in asked.clauses:
        mine = [columns[term] for term in clause if term in columns]
        if not mine:
            continue
        sums = list(map(mul, map(sum, zip(*mine, strict=True)), covers))
        highest = max(sums)
        if highest > 0.0:
            share = (highest / top) ** 0.5 / highest
            best = [max(one, share * other) for one, other in zip(best, sums, strict=True)]
    return {
        number: (1 - _CLAUSES) * score / top + _CLAUSES * of_clause
        for number, score, of_clause in zip(candidates, scores, best, strict=True)
    }


def _candidates(concepts: Iterable[Concept], least: int, names: Mapping[int, str]) -> list[int]:
    most = max(_CANDIDATES, least)
    total: list[int] = []
    for concept in concepts:
        add(total, concept.planes)
    sure, equal = best(total, most)
    found = members(sure)
    if len(found) == most or not equal:
        return found
    return found + nsmallest(most - len(found), members(equal), key=names.__getitem__)


def _covers(view: View, candidates: Sequence[int], concepts: Iterable[Concept]) -> list[float]:
    """How much each document is raised for the share of its name that the query covers."""
    have: dict[int, float] = {}
    for concept in concepts:
        for place, share in concept.terms:
            if share > have.get(place, 0.0):
                have[place] = min(1.0, share)
    return [1 + _COVER * covered for covered in view.covers(candidates, have)]
