"""A query taken apart: its terms, what each counts, and the clauses that may each want another tool.

A request often names several things to do, and much that is no word of a tool: courtesies, quoted values,
addresses, numbers. Clauses are ranked apart and merged, values and courtesies count for less. A query is read
up to a bound, whatever its length.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from toolyard.catalog.search.memo import Kept
from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.stopwords import STOPPED, WEAK
from toolyard.catalog.search.tokenizer import folded, pieces, runs

__all__ = ["Asked", "ask"]

_LONGEST = 8_000
_MOST_TERMS = 64
_MOST_CLAUSES = 12
_CLAUSE_WEIGHT = 1.8
_WEAK = 0.35
_VALUE = 0.7
_NUMBER = 0.5
_AGAIN = 0.15
_JOINED_PARTS = 3
_LONGEST_PAIR = 16
_KEPT = 4_096

_TOKEN = re.compile(
    r"""[^\W_]+  # a run
    |"[^"]{1,200}"|“[^”]{1,200}”|(?<!\w)'[^']{1,200}'(?!\w)|(?<!\w)(?:/[\w.\-]+){2,}  # a value
    |[.?!;,]+(?=\s|$)|\n|[。；？，、]|(?<=\s)\+(?=\s)  # the end of a clause
    """,
    re.VERBOSE,
)
_VALUES = frozenset("\"“'/")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S{1,500}|[^\s@]{1,64}@[^\s@]{1,255}")
_Term = tuple[str, float, str, bool]
_END: _Term = ("", 0.0, "", False)
_ENDING = frozenset({"additionally", "after", "also", "and", "before", "finally", "or", "then", "while"})


class Asked(NamedTuple):
    """What a query asks for: each term's weight, and the terms of each clause where there are several.

    ``values`` are the terms that only stand in quoted values, where no misspelling is supposed. ``pairs`` are
    neighbours written together, for words that are one in the catalogue and two here.
    """

    weights: Mapping[str, float]
    clauses: Sequence[Collection[str]]
    values: Set[str]
    pairs: Mapping[str, float]


def ask(query: str) -> Asked:
    """Read a query. One without any word has no terms."""
    weights: dict[str, float] = {}
    pairs: dict[str, float] = {}
    values: set[str] = set()
    clause: dict[str, None] = {}
    clauses = [clause]
    heavy = 0.0
    before, last = "", 0.0
    for term, weight, part, is_value in _terms(folded(query[:_LONGEST]).replace("’", "'")):
        known = weights.get(term)
        if known is not None:
            weights[term] = max(known, weight) + _AGAIN * weight
            if not is_value:
                values.discard(term)
        elif not term:
            if heavy >= _CLAUSE_WEIGHT and len(clauses) < _MOST_CLAUSES:
                clause = {}
                clauses.append(clause)
                heavy = 0.0
            before = ""
            continue
        elif len(weights) >= _MOST_TERMS:
            continue
        else:
            weights[term] = weight
            if is_value:
                values.add(term)
        heavy += weight
        clause[term] = None
        if weight <= _WEAK:
            before = ""
            continue
        if before and len(before) + len(part) <= _LONGEST_PAIR:
            pairs.setdefault(before + part, min(last, weight))
        before, last = part, weight
    if len(clauses) > 1 and heavy < _CLAUSE_WEIGHT:  # one that weighs too little goes with its neighbour
        clauses.pop()
        clauses[-1] |= clause
    return Asked(weights, clauses if len(clauses) > 1 else [], values, pairs)


def _terms(text: str) -> Iterator[_Term]:
    """Each term with its weight, its word and whether it is of a value; an empty one where a clause ends."""
    if "@" in text or "www." in text or "://" in text:
        text = _ADDRESS.sub(lambda found: f'"{found[0][:198]}"', text.replace('"', "'"))
    return chain.from_iterable(map(_TOKENS.__getitem__, _TOKEN.findall(text)))


def _of_token(token: str) -> tuple[_Term, ...]:
    if token[0].isalnum():
        return _of_run(token)
    if token[0] not in _VALUES:
        return (_END,)
    return tuple(
        (term, weight * _VALUE, part, True)
        for run in runs(token)
        for term, weight, part, _ in _of_run(run)
        if term
    )


_TOKENS = Kept(_of_token, _KEPT)


def _of_run(run: str) -> tuple[_Term, ...]:
    parts = pieces(run)
    found = [_END] if run.lower() in _ENDING else []
    found += [
        (stem(part), _weight(part), part, False)
        for part in parts
        if part not in STOPPED and (len(part) > 1 or not part.isascii())
    ]
    if 1 < len(parts) <= _JOINED_PARTS and run.isascii():
        found.append((stem(run.lower()), 1.0, run.lower(), False))
    return tuple(found)


def _weight(part: str) -> float:
    if part in WEAK:
        return _WEAK
    return _NUMBER if part.isdigit() else 1.0
