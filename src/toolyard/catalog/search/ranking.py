"""The best tools for a query, out of a view.

First the sum over all terms picks candidates, the strongest terms first, until what is left cannot lift
another tool among them. Then the candidates are weighed: how much of a tool's name the query covers, and how
well the tool answers a single clause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from operator import mul

from toolyard.catalog.search.query import Asked
from toolyard.catalog.search.view import Concept, View

__all__ = ["rank"]

_CANDIDATES = 48
_FAR = 0.3
_COMMON = 400
"""Entries of a word that is too common to bring a candidate where rarer ones did."""
_COVER = 0.5
_COVER_EASE = 1.0
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
    found.sort(key=lambda each: (-each[1].bound, each[0]))
    concepts = dict(found)
    candidates = _candidates([concept for _, concept in found], least, names)
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


def _candidates(concepts: Sequence[Concept], least: int, names: Mapping[int, str]) -> list[int]:
    most = max(_CANDIDATES, least)
    sums: dict[int, float] = {}
    for concept in concepts:
        if concept.size > _COMMON and len(sums) >= most:
            continue
        impacts = concept.strong
        both = [(number, sums[number] + impacts[number]) for number in sums.keys() & impacts.keys()]
        sums.update(impacts)
        sums.update(both)
    if len(sums) < most:
        for concept in concepts:
            sums = {**concept.impacts, **sums}
    if len(sums) <= most:
        return list(sums)
    cut = _FAR * max(sums.values())
    near = [number for number, total in sums.items() if total >= cut]
    if len(near) < least:
        near = list(sums)
    if len(near) <= most:
        return near
    near.sort(key=sums.__getitem__, reverse=True)
    last = sums[near[most - 1]]
    if sums[near[most]] < last:
        return near[:most]
    above = [number for number in near if sums[number] > last]
    equal = [number for number in near if sums[number] == last]
    return above + nsmallest(most - len(above), equal, key=names.__getitem__)


def _covers(view: View, candidates: Sequence[int], concepts: dict[str, Concept]) -> list[float]:
    """How much each document is raised for the share of its name that the query covers."""
    have: dict[int, float] = {}
    for concept in concepts.values():
        for place, share in concept.terms:
            if share > have.get(place, 0.0):
                have[place] = min(share, 1.0)
    raised: list[float] = []
    for number in candidates:
        name, total = view.name(number)
        covered = 0.0
        for place, rarity in name:
            if place in have:
                covered += rarity * have[place]
        raised.append(1 + _COVER * covered / (total + _COVER_EASE))
    return raised
