"""Structured content that is too much: how much it is, and the same with its long texts shortened."""

from __future__ import annotations

import json
from typing import Any, cast

from toolyard.results.truncation import truncate_middle

__all__ = ["estimate_characters", "is_text_equivalent", "truncate_structured"]

_LONG_TEXT_CHARACTERS = 2_000
"""Characters from which on a text is worth shortening."""
_MIN_TEXT_CHARACTERS = 1_000
_LONGEST_JSON = 250_000
"""Characters of a text that is compared as JSON: decoding a longer one could take seconds."""
_MAX_DEPTH = 64
_VALUE_OVERHEAD_CHARACTERS = 4


def estimate_characters(value: object, max_characters: int) -> int:
    """About how many characters a JSON value has; it is not counted on above ``most``."""
    total, waiting = 0, [value]
    while waiting and total <= max_characters:
        found = waiting.pop()
        if type(found) is str:
            total += len(found)
        elif isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            total += sum(map(len, fields)) + _VALUE_OVERHEAD_CHARACTERS * len(fields)
            waiting.extend(fields.values())
        elif isinstance(found, list):
            items = cast("list[object]", found)
            total += _VALUE_OVERHEAD_CHARACTERS * len(items)
            waiting.extend(items)
    return total


def is_text_equivalent(text: str, value: object) -> bool:
    """Whether a text holds all that a structured content does: it is its only value, or its JSON."""
    if isinstance(value, dict) and list(cast("dict[str, Any]", value).values()) == [text]:
        return True
    if len(text) > _LONGEST_JSON:
        return False
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def truncate_structured(value: object, max_characters: int, read_hint: str) -> object | None:
    """The same shape with its long texts shortened, ``where`` says how the whole is read; None where the rest
    alone would not fit."""
    longs = sum(1 for each in _collect_texts(value) if len(each) > _LONG_TEXT_CHARACTERS)
    share = max(_MIN_TEXT_CHARACTERS, max_characters // max(1, longs))
    made = _truncate_texts(value, share, read_hint, 0)
    return made if estimate_characters(made, 2 * max_characters) <= 2 * max_characters else None


def _collect_texts(value: object) -> list[str]:
    found: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, dict):
            waiting.extend(cast("dict[str, object]", each).values())
        elif isinstance(each, list):
            waiting.extend(cast("list[object]", each))
    return found


def _truncate_texts(value: object, share: int, where: str, depth: int) -> object:
    if isinstance(value, str):
        return truncate_middle(value, share, where) if len(value) > _LONG_TEXT_CHARACTERS else value
    if depth < _MAX_DEPTH and isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _truncate_texts(each, share, where, depth + 1) for key, each in fields.items()}
    if depth < _MAX_DEPTH and isinstance(value, list):
        return [_truncate_texts(each, share, where, depth + 1) for each in cast("list[object]", value)]
    return value
