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

from toolyard.catalog.search.memo import BoundedMemo
from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.tokenizer import STOP_WORDS, WEAK_WORDS, fold_text, split_runs, split_words

__all__ = ["ParsedQuery", "parse_query"]

_MAX_QUERY_CHARS = 8_000
_MAX_TERMS = 64
_MAX_CLAUSES = 12
_MIN_CLAUSE_WEIGHT = 1.8
_WEAK_WORD_WEIGHT = 0.35
_VALUE_FACTOR = 0.7
_NUMBER_WEIGHT = 0.5
_REPETITION_FACTOR = 0.15
_MAX_JOINED_PARTS = 3
_MAX_PAIR_CHARS = 16
_MAX_CACHED_TOKENS = 4_096

_TOKEN_PATTERN = re.compile(
    r"""[^\W_]+  # a run
    |"[^"]{1,200}"|“[^”]{1,200}”|(?<!\w)'[^']{1,200}'(?!\w)|(?<!\w)(?:/[\w.\-]+){2,}  # a value
    |[.?!;,]+(?=\s|$)|\n|[。；？，、]|(?<=\s)\+(?=\s)  # the end of a clause
    """,
    re.VERBOSE,
)
_VALUE_FIRST_CHARACTERS = frozenset("\"“'/")
_ADDRESS_PATTERN = re.compile(r"(?:https?://|www\.)\S{1,500}|[^\s@]{1,64}@[^\s@]{1,255}")
_QueryTerm = tuple[str, float, str, bool]
_CLAUSE_END: _QueryTerm = ("", 0.0, "", False)
_CLAUSE_SEPARATOR_WORDS = frozenset(
    {"additionally", "after", "also", "and", "before", "finally", "or", "then", "while"}
)


class ParsedQuery(NamedTuple):
    """What a query asks for: each term's weight, and the terms of each clause where there are several.

    ``values`` are the terms that only stand in quoted values, where no misspelling is supposed. ``pairs`` are
    neighbours written together, for words that are one in the catalogue and two here.
    """

    weights: Mapping[str, float]
    clauses: Sequence[Collection[str]]
    values: Set[str]
    pairs: Mapping[str, float]


def parse_query(query: str) -> ParsedQuery:
    """Read a query. One without any word has no terms."""
    weights: dict[str, float] = {}
    pairs: dict[str, float] = {}
    values: set[str] = set()
    clause: dict[str, None] = {}
    clauses = [clause]
    heavy = 0.0
    before, last = "", 0.0
    for term, weight, part, is_value in _iterate_terms(fold_text(query[:_MAX_QUERY_CHARS]).replace("’", "'")):
        known = weights.get(term)
        if known is not None:
            weights[term] = max(known, weight) + _REPETITION_FACTOR * weight
            if not is_value:
                values.discard(term)
        elif not term:
            if heavy >= _MIN_CLAUSE_WEIGHT and len(clauses) < _MAX_CLAUSES:
                clause = {}
                clauses.append(clause)
                heavy = 0.0
            before = ""
            continue
        elif len(weights) >= _MAX_TERMS:
            continue
        else:
            weights[term] = weight
            if is_value:
                values.add(term)
        heavy += weight
        clause[term] = None
        if weight <= _WEAK_WORD_WEIGHT:
            before = ""
            continue
        if before and len(before) + len(part) <= _MAX_PAIR_CHARS:
            pairs.setdefault(before + part, min(last, weight))
        before, last = part, weight
    if len(clauses) > 1 and heavy < _MIN_CLAUSE_WEIGHT:  # one that weighs too little goes with its neighbour
        clauses.pop()
        clauses[-1] |= clause
    return ParsedQuery(weights, clauses if len(clauses) > 1 else [], values, pairs)


def _iterate_terms(text: str) -> Iterator[_QueryTerm]:
    """Each term with its weight, its word and whether it is of a value; an empty one where a clause ends."""
    if "@" in text or "www." in text or "://" in text:
        text = _ADDRESS_PATTERN.sub(lambda found: f'"{found[0][:198]}"', text.replace('"', "'"))
    return chain.from_iterable(map(_TERMS_BY_TOKEN.__getitem__, _TOKEN_PATTERN.findall(text)))


def _parse_token(token: str) -> tuple[_QueryTerm, ...]:
    if token[0].isalnum():
        return _parse_run(token)
    if token[0] not in _VALUE_FIRST_CHARACTERS:
        return (_CLAUSE_END,)
    return tuple(
        (term, weight * _VALUE_FACTOR, part, True)
        for run in split_runs(token)
        for term, weight, part, _ in _parse_run(run)
        if term
    )


_TERMS_BY_TOKEN = BoundedMemo(_parse_token, _MAX_CACHED_TOKENS)


def _parse_run(run: str) -> tuple[_QueryTerm, ...]:
    parts = split_words(run)
    found = [_CLAUSE_END] if run.lower() in _CLAUSE_SEPARATOR_WORDS else []
    found += [
        (stem(part), _word_weight(part), part, False)
        for part in parts
        if part not in STOP_WORDS and (len(part) > 1 or not part.isascii())
    ]
    if 1 < len(parts) <= _MAX_JOINED_PARTS and run.isascii():
        found.append((stem(run.lower()), 1.0, run.lower(), False))
    return tuple(found)


def _word_weight(part: str) -> float:
    if part in WEAK_WORDS:
        return _WEAK_WORD_WEIGHT
    return _NUMBER_WEIGHT if part.isdigit() else 1.0
