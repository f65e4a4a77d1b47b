"""Search documents: the terms of a tool definition with their weights.

Terms come from the tool's name, server, title, description and parameters. Each of these fields has a weight
and a usual length; a term in a longer text counts for less. This is the term-frequency part of BM25F with
fixed instead of average lengths, so that a document depends on its definition alone: adding a tool does not
change the others, and an update costs in proportion to the change. Every text from a server is read up to a
limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from toolyard.catalog.search.tokenizer import extract_terms, fold_text, split_runs
from toolyard.types.tool import Definition

__all__ = ["DocumentBuilder", "SearchDocument"]


@dataclass(frozen=True, slots=True)
class _FieldWeight:
    weight: float
    usual_words: int
    """Number of words at which the field's length has no effect on the weight."""


_NAME_FIELD = _FieldWeight(3.0, 3)
_SERVER_FIELD = _FieldWeight(2.0, 2)
_FIRST_SENTENCE_FIELD = _FieldWeight(1.0, 12)
_REMAINING_TEXT_FIELD = _FieldWeight(0.6, 30)
_PARAMETER_NAME_FIELD = _FieldWeight(1.0, 4)
_PARAMETER_TEXT_FIELD = _FieldWeight(0.3, 30)
_SERVER_TEXT_FIELD = _FieldWeight(0.5, 30)

_TERM_SATURATION = 0.7
_LENGTH_NORMALIZATION = 0.5
_WEIGHT_STEPS = 255
_WEIGHT_LEVELS = [level / (_WEIGHT_STEPS + 1) for level in range(_WEIGHT_STEPS + 2)]
"""Possible weights of a term, between 0 and 1. There are few, so that all documents share the same float
objects."""
_MAX_NAME_CHARS = 256
_MAX_TEXT_CHARS = 4_000
_MAX_SERVER_TEXT_CHARS = 2_000
_MAX_SCHEMA_PROPERTIES = 256
_MAX_SCHEMA_DEPTH = 3
_MAX_DOCUMENT_TERMS = 512
_MAX_CACHED_RUNS = 100_000
_MAX_CACHED_RUN_CHARS = 40
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n|。")


@dataclass(frozen=True, slots=True)
class SearchDocument:
    """Terms of one definition: the weight of each, at most 1, and the terms of the tool's name."""

    weights: Mapping[str, float]
    name_terms: tuple[str, ...]


class DocumentBuilder:
    """Builds search documents. Caches the terms of each run of characters, since the same words recur."""

    def __init__(self, *, max_cached_run_chars: int = _MAX_CACHED_RUN_CHARS) -> None:
        self._max_cached_run_chars = max_cached_run_chars
        self._terms_by_run: dict[str, tuple[str, ...]] = {}

    def build_server_weights(self, server_id: str, text: str) -> Mapping[str, float]:
        """Return the term weights that a server's id and description add to each of its tools."""
        weights: dict[str, float] = {}
        _add_field(weights, _SERVER_FIELD, self._terms_of_text(server_id[:_MAX_NAME_CHARS]))
        _add_field(weights, _SERVER_TEXT_FIELD, self._terms_of_text(text[:_MAX_SERVER_TEXT_CHARS]))
        return weights

    def build(self, definition: Definition, server_weights: Mapping[str, float]) -> SearchDocument:
        """Return the document of one definition. ``server_weights`` comes from ``build_server_weights``."""
        found = dict(server_weights)
        name = self._terms_of_text(definition.name[:_MAX_NAME_CHARS])
        _add_field(found, _NAME_FIELD, name)
        title = self._terms_of_text((definition.title or "")[:_MAX_NAME_CHARS])
        # Most titles repeat the name; counting a term for both would double its weight.
        name_terms = set(name)
        _add_field(found, _NAME_FIELD, [term for term in title if term not in name_terms])
        first, rest = _split_first_sentence(definition.description)
        _add_field(found, _FIRST_SENTENCE_FIELD, self._terms_of_text(first))
        _add_field(found, _REMAINING_TEXT_FIELD, self._terms_of_text(rest))
        names, texts = _collect_parameters(definition.input_schema)
        _add_field(found, _PARAMETER_NAME_FIELD, self._terms_of_text(names))
        _add_field(found, _PARAMETER_TEXT_FIELD, self._terms_of_text(texts))
        # Saturation as in BM25, in fixed steps: each further occurrence adds less, and no weight exceeds 1.
        weights = {
            term: _WEIGHT_LEVELS[int(_WEIGHT_STEPS * count / (_TERM_SATURATION + count)) + 1]
            for term, count in islice(found.items(), _MAX_DOCUMENT_TERMS)
        }
        return SearchDocument(weights, tuple(dict.fromkeys(name)))

    def _terms_of_text(self, text: str) -> list[str]:
        cache = self._terms_by_run
        terms: list[str] = []
        for run in split_runs(fold_text(text)[:_MAX_TEXT_CHARS]):
            run_terms = cache.get(run)
            if run_terms is None:
                run_terms = extract_terms(run)
                if len(run) <= self._max_cached_run_chars:
                    if len(cache) >= _MAX_CACHED_RUNS:
                        cache.clear()
                    cache[run] = run_terms
            terms += run_terms
        return terms


def _add_field(found: dict[str, float], field: _FieldWeight, words: Iterable[str]) -> None:
    counts = Counter(words)
    if not counts:
        return
    length = 1 - _LENGTH_NORMALIZATION + _LENGTH_NORMALIZATION * counts.total() / field.usual_words
    share = field.weight / length
    for term, count in counts.items():
        found[term] = found.get(term, 0.0) + share * count


def _split_first_sentence(description: str) -> tuple[str, str]:
    """Return the first sentence, which usually says what the tool does, and the remaining text."""
    parts = _SENTENCE_END.split(description.strip()[:_MAX_TEXT_CHARS], maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _collect_parameters(schema: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of a schema's properties and their descriptions, each joined with spaces."""
    names: list[str] = []
    texts: list[str] = []
    length = 0
    for name, description in islice(_walk_properties(schema, 0), _MAX_SCHEMA_PROPERTIES):
        names.append(name[:_MAX_NAME_CHARS])
        if length < _MAX_TEXT_CHARS:
            texts.append(description[: _MAX_TEXT_CHARS - length])
            length += len(description)
    return " ".join(names)[:_MAX_TEXT_CHARS], " ".join(texts)


def _walk_properties(schema: object, depth: int) -> Iterator[tuple[str, str]]:
    if depth >= _MAX_SCHEMA_DEPTH or not isinstance(schema, Mapping):
        return
    properties = cast(Mapping[str, object], schema).get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, subschema in cast(Mapping[object, object], properties).items():
        if not isinstance(subschema, Mapping):
            yield str(name), ""
            continue
        inner = cast(Mapping[str, object], subschema)
        description = inner.get("description")
        yield str(name), description if isinstance(description, str) else ""
        yield from _walk_properties(inner, depth + 1)
        yield from _walk_properties(inner.get("items"), depth + 1)
