"""Parsing of a search query into weighted terms and clauses.

Queries are often whole requests in natural language. They name several tasks, each of which may need another
tool, and contain much that describes no tool: polite phrases, quoted values, addresses, numbers. Clauses are
therefore ranked separately and merged, and values and filler words get lower weights. Only the first
``_MAX_QUERY_CHARS`` characters are read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

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
    r"""[^\W_]+  # a run of letters and digits
    |"[^"]{1,200}"|“[^”]{1,200}”|(?<!\w)'[^']{1,200}'(?!\w)|(?<!\w)(?:/[\w.\-]+){2,}  # a value
    |[.?!;,]+(?=\s|$)|\n|[。；？，、]|(?<=\s)\+(?=\s)  # the end of a clause
    """,
    re.VERBOSE,
)
_VALUE_FIRST_CHARACTERS = frozenset("\"“'/")
_ADDRESS_PATTERN = re.compile(r"(?:https?://|www\.)\S{1,500}|[^\s@]{1,64}@[^\s@]{1,255}")
_QueryTerm = tuple[str, float, str, bool]
"""Stem, weight, word, and True if the word is part of a quoted value. The stem is empty at the end of a
clause."""
_CLAUSE_END: _QueryTerm = ("", 0.0, "", False)
_CLAUSE_SEPARATOR_WORDS = frozenset(
    {"additionally", "after", "also", "and", "before", "finally", "or", "then", "while"}
)


class ParsedQuery(NamedTuple):
    """Weights of a query's terms, and the terms of each clause if there are several clauses.

    ``values`` are the terms that occur only in quoted values, for which no fuzzy matching is done. ``pairs``
    are adjacent words joined ("web hook" as "webhook"), for compounds that tools write as one word.
    """

    weights: Mapping[str, float]
    clauses: Sequence[Collection[str]]
    values: Set[str]
    pairs: Mapping[str, float]


def parse_query(query: str) -> ParsedQuery:
    """Parse a query. The result has no terms if the query has no words."""
    weights: dict[str, float] = {}
    pairs: dict[str, float] = {}
    values: set[str] = set()
    clause: dict[str, None] = {}
    clauses = [clause]
    clause_weight = 0.0
    previous_part, previous_weight = "", 0.0
    for term, weight, part, is_value in _iterate_terms(fold_text(query[:_MAX_QUERY_CHARS]).replace("’", "'")):
        known = weights.get(term)
        if known is not None:
            # A repeated word matters a little more, not twice as much.
            weights[term] = max(known, weight) + _REPETITION_FACTOR * weight
            if not is_value:
                values.discard(term)
        elif not term:
            # A clause of too little weight ("please,") is continued instead of ended.
            if clause_weight >= _MIN_CLAUSE_WEIGHT and len(clauses) < _MAX_CLAUSES:
                clause = {}
                clauses.append(clause)
                clause_weight = 0.0
            previous_part = ""
            continue
        elif len(weights) >= _MAX_TERMS:
            continue
        else:
            weights[term] = weight
            if is_value:
                values.add(term)
        clause_weight += weight
        clause[term] = None
        if weight <= _WEAK_WORD_WEIGHT:
            previous_part = ""
            continue
        if previous_part and len(previous_part) + len(part) <= _MAX_PAIR_CHARS:
            pairs.setdefault(previous_part + part, min(previous_weight, weight))
        previous_part, previous_weight = part, weight
    if len(clauses) > 1 and clause_weight < _MIN_CLAUSE_WEIGHT:
        # The last clause has too little weight to be ranked alone: merge it into the one before.
        clauses.pop()
        clauses[-1] |= clause
    return ParsedQuery(weights, clauses if len(clauses) > 1 else [], values, pairs)


def _iterate_terms(text: str) -> Iterator[_QueryTerm]:
    """Yield the terms of the folded text in order, with ``_CLAUSE_END`` at the end of each clause."""
    # Quote addresses, so that the tokenizer treats them as values.
    if "@" in text or "www." in text or "://" in text:
        text = _ADDRESS_PATTERN.sub(lambda match: f'"{match[0][:198]}"', text.replace('"', "'"))
    return chain.from_iterable(map(_parse_token, _TOKEN_PATTERN.findall(text)))


@lru_cache(_MAX_CACHED_TOKENS)
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


def _parse_run(run: str) -> tuple[_QueryTerm, ...]:
    parts = split_words(run)
    terms = [_CLAUSE_END] if run.lower() in _CLAUSE_SEPARATOR_WORDS else []
    terms += [
        (stem(part), _word_weight(part), part, False)
        for part in parts
        if part not in STOP_WORDS and (len(part) > 1 or not part.isascii())
    ]
    if 1 < len(parts) <= _MAX_JOINED_PARTS and run.isascii():
        terms.append((stem(run.lower()), 1.0, run.lower(), False))
    return tuple(terms)


def _word_weight(part: str) -> float:
    if part in WEAK_WORDS:
        return _WEAK_WORD_WEIGHT
    return _NUMBER_WEIGHT if part.isdigit() else 1.0
