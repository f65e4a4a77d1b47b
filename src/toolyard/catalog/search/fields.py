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

from toolyard.catalog.search.tokenizer import folded, runs, terms
from toolyard.types.tool import Definition

__all__ = ["Document", "Reader"]


@dataclass(frozen=True, slots=True)
class _Field:
    weight: float
    usual: int
    """Words that a field of this kind usually has."""


_NAME = _Field(3.0, 3)
_SERVER = _Field(2.0, 2)
_FIRST = _Field(1.0, 12)
_REST = _Field(0.6, 30)
_PARAMETERS = _Field(1.0, 4)
_PARAMETER_TEXTS = _Field(0.3, 30)
_ABOUT_SERVER = _Field(0.5, 30)

_SATURATION = 0.7
_LENGTH = 0.5
_FINENESS = 255
_LEVELS = [level / (_FINENESS + 1) for level in range(_FINENESS + 2)]
"""The weights that there are: few, so that all tables share the same numbers."""
_NAME_LENGTH = 256
_TEXT_LENGTH = 4_000
_ABOUT_LENGTH = 2_000
_SCHEMA_PLACES = 256
_SCHEMA_DEPTH = 3
_MOST_TERMS = 512
_KEPT = 100_000
_LONGEST_KEPT = 40
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n|。")


@dataclass(frozen=True, slots=True)
class Document:
    """A definition as the index keeps it: what each term counts, at most 1, and the terms of its name."""

    weights: Mapping[str, float]
    name_terms: tuple[str, ...]


class Reader:
    """Reads definitions. Remembers the runs that it took apart, since they recur."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[str, ...]] = {}

    def about(self, server_id: str, text: str) -> Mapping[str, float]:
        """What a server's own name and words add to each of its tools."""
        found: dict[str, float] = {}
        _add(found, _SERVER, self._terms(server_id[:_NAME_LENGTH]))
        _add(found, _ABOUT_SERVER, self._terms(text[:_ABOUT_LENGTH]))
        return found

    def document(self, definition: Definition, about: Mapping[str, float]) -> Document:
        """The terms of one definition with their weights; ``about`` is its server's share."""
        found = dict(about)
        name = self._terms(definition.name[:_NAME_LENGTH])
        _add(found, _NAME, name)
        title = self._terms((definition.title or "")[:_NAME_LENGTH])
        known = set(name)
        _add(found, _NAME, [term for term in title if term not in known])
        first, rest = _parted(definition.description)
        _add(found, _FIRST, self._terms(first))
        _add(found, _REST, self._terms(rest))
        names, texts = _parameters(definition.input_schema)
        _add(found, _PARAMETERS, self._terms(names))
        _add(found, _PARAMETER_TEXTS, self._terms(texts))
        weights = {
            term: _LEVELS[int(_FINENESS * count / (_SATURATION + count)) + 1]
            for term, count in islice(found.items(), _MOST_TERMS)
        }
        return Document(weights, tuple(dict.fromkeys(name)))

    def _terms(self, text: str) -> list[str]:
        kept = self._runs
        found: list[str] = []
        for run in runs(folded(text)):
            known = kept.get(run)
            if known is None:
                known = terms(run)
                if len(run) <= _LONGEST_KEPT:
                    if len(kept) >= _KEPT:
                        kept.clear()
                    kept[run] = known
            found += known
        return found


def _add(found: dict[str, float], field: _Field, words: Iterable[str]) -> None:
    counts = Counter(words)
    if not counts:
        return
    length = 1 - _LENGTH + _LENGTH * counts.total() / field.usual
    share = field.weight / length
    for term, count in counts.items():
        found[term] = found.get(term, 0.0) + share * count


def _parted(description: str) -> tuple[str, str]:
    """The first sentence, which says what the tool does, and the rest."""
    parts = _SENTENCE.split(description.strip()[:_TEXT_LENGTH], maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _parameters(schema: Mapping[str, Any]) -> tuple[str, str]:
    """The names of a schema's properties, and what is said about them; both joined."""
    names: list[str] = []
    texts: list[str] = []
    length = 0
    for name, said in islice(_places(schema, 0), _SCHEMA_PLACES):
        names.append(name[:_NAME_LENGTH])
        if length < _TEXT_LENGTH:
            texts.append(said[: _TEXT_LENGTH - length])
            length += len(said)
    return " ".join(names), " ".join(texts)


def _places(schema: object, depth: int) -> Iterator[tuple[str, str]]:
    if depth >= _SCHEMA_DEPTH or not isinstance(schema, Mapping):
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
        yield from _places(inner, depth + 1)
        yield from _places(inner.get("items"), depth + 1)
