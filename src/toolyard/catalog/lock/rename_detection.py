"""Which tools of a server are accepted ones under another name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from toolyard.catalog.lock.pins import Pin

__all__ = ["detect_renames"]

_MIN_SIMILARITY = 0.8
_MAX_COMPARED_CHARS = 2_000
"""Characters of a description."""
_MAX_COMPARED_DESCRIPTIONS = 20_000
"""Descriptions that are compared at most: a server with thousands of such tools must not hold others up. What
is left over is new, and says no less."""


def detect_renames(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    """The accepted names by the new ones: of tools that are the same but for the name, or nearly. In time
    that grows with their number, whatever they hold."""
    if not fresh or not gone:
        return {}
    found = _match_identical(fresh, gone)
    rest = {name: pin for name, pin in gone.items() if name not in found.values()}
    found.update(_match_similar({name: pin for name, pin in fresh.items() if name not in found}, rest))
    return found


def _match_identical(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    by_body: dict[str, list[str]] = {}
    for name, pin in gone.items():
        by_body.setdefault(pin.body_hash, []).append(name)
    found: dict[str, str] = {}
    for name, pin in fresh.items():
        if names := by_body.get(pin.body_hash):
            found[name] = names.pop(0)
    return found


def _match_similar(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    by_schema: dict[str, dict[str, Counter[str]]] = {}
    for name, pin in gone.items():
        if words := _count_words(pin):
            by_schema.setdefault(pin.schema_hash, {})[name] = words
    found: dict[str, str] = {}
    pairs = _MAX_COMPARED_DESCRIPTIONS
    for name, pin in fresh.items():
        words, others = _count_words(pin), by_schema.get(pin.schema_hash, {})
        pairs -= len(others)
        if pairs < 0:
            break
        was = next(
            (
                other
                for other, said in others.items()
                if words and _word_similarity(words, said) >= _MIN_SIMILARITY
            ),
            None,
        )
        if was is not None:
            found[name] = was
            del others[was]
    return found


def _count_words(pin: Pin) -> Counter[str]:
    return Counter(str(pin.definition.get("description", ""))[:_MAX_COMPARED_CHARS].split())


def _word_similarity(one: Counter[str], other: Counter[str]) -> float:
    """How many of the words of both are in both, from 0 to 1."""
    return 2 * (one & other).total() / (one.total() + other.total())
