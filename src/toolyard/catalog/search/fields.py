"""What of a definition is searched, and how much each part of it counts.

A tool's words come from its name, its server, its title and description, and its parameters. Each field has
a weight, and is held against a usual length, so that a word in a long text counts for less. All of it
depends on the definition alone: adding a tool changes nothing about another, and an update costs in
proportion to what is new. Whatever a server sends is read up to a bound.
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
    """Words that a field of this kind usually has."""


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
"""The weights that there are: few, so that all tables share the same numbers."""
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
    """A definition as the index keeps it: what each term counts, at most 1, and the terms of its name."""

    weights: Mapping[str, float]
    name_terms: tuple[str, ...]


class DocumentBuilder:
    """Reads definitions. Remembers the runs that it took apart, since they recur."""

    def __init__(self) -> None:
        self._terms_by_run: dict[str, tuple[str, ...]] = {}

    def weigh_server(self, server_id: str, text: str) -> Mapping[str, float]:
        """What a server's own name and words add to each of its tools."""
        found: dict[str, float] = {}
        _add_field(found, _SERVER_FIELD, self._terms_of_text(server_id[:_MAX_NAME_CHARS]))
        _add_field(found, _SERVER_TEXT_FIELD, self._terms_of_text(text[:_MAX_SERVER_TEXT_CHARS]))
        return found

    def build(self, definition: Definition, server_weights: Mapping[str, float]) -> SearchDocument:
        """The terms of one definition with their weights; ``about`` is its server's share."""
        found = dict(server_weights)
        name = self._terms_of_text(definition.name[:_MAX_NAME_CHARS])
        _add_field(found, _NAME_FIELD, name)
        title = self._terms_of_text((definition.title or "")[:_MAX_NAME_CHARS])
        known = set(name)
        _add_field(found, _NAME_FIELD, [term for term in title if term not in known])
        first, rest = _split_first_sentence(definition.description)
        _add_field(found, _FIRST_SENTENCE_FIELD, self._terms_of_text(first))
        _add_field(found, _REMAINING_TEXT_FIELD, self._terms_of_text(rest))
        names, texts = _collect_parameters(definition.input_schema)
        _add_field(found, _PARAMETER_NAME_FIELD, self._terms_of_text(names))
        _add_field(found, _PARAMETER_TEXT_FIELD, self._terms_of_text(texts))
        weights = {
            term: _WEIGHT_LEVELS[int(_WEIGHT_STEPS * count / (_TERM_SATURATION + count)) + 1]
            for term, count in islice(found.items(), _MAX_DOCUMENT_TERMS)
        }
        return SearchDocument(weights, tuple(dict.fromkeys(name)))

    def _terms_of_text(self, text: str) -> list[str]:
        kept = self._terms_by_run
        found: list[str] = []
        for run in split_runs(fold_text(text)):
            known = kept.get(run)
            if known is None:
                known = extract_terms(run)
                if len(run) <= _MAX_CACHED_RUN_CHARS:
                    if len(kept) >= _MAX_CACHED_RUNS:
                        kept.clear()
                    kept[run] = known
            found += known
        return found


def _add_field(found: dict[str, float], field: _FieldWeight, words: Iterable[str]) -> None:
    counts = Counter(words)
    if not counts:
        return
    length = 1 - _LENGTH_NORMALIZATION + _LENGTH_NORMALIZATION * counts.total() / field.usual_words
    share = field.weight / length
    for term, count in counts.items():
        found[term] = found.get(term, 0.0) + share * count


def _split_first_sentence(description: str) -> tuple[str, str]:
    """The first sentence, which says what the tool does, and the rest."""
    parts = _SENTENCE_END.split(description.strip()[:_MAX_TEXT_CHARS], maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _collect_parameters(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The names of a schema's properties, and what is said about them; both joined."""
    names: list[str] = []
    texts: list[str] = []
    length = 0
    for name, said in islice(_walk_properties(schema, 0), _MAX_SCHEMA_PROPERTIES):
        names.append(name[:_MAX_NAME_CHARS])
        if length < _MAX_TEXT_CHARS:
            texts.append(said[: _MAX_TEXT_CHARS - length])
            length += len(said)
    return " ".join(names), " ".join(texts)


def _walk_properties(schema: object, depth: int) -> Iterator[tuple[str, str]]:
    if depth >= _MAX_SCHEMA_DEPTH or not isinstance(schema, Mapping):
        return
    properties = cast(Mapping[str, object], schema).get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, place in cast(Mapping[object, object], properties).items():
        if not isinstance(place, Mapping):
            yield str(name), ""
            continue
        inner = cast(Mapping[str, object], place)
        said = inner.get("description")
        yield str(name), said if isinstance(said, str) else ""
        yield from _walk_properties(inner, depth + 1)
        yield from _walk_properties(inner.get("items"), depth + 1)
