"""Size and shortening of structured content."""

from __future__ import annotations

import json
from typing import Any, cast

from toolyard.results.truncation import truncate_middle

__all__ = ["estimate_characters", "is_text_equivalent", "truncate_structured"]

_LONG_TEXT_CHARACTERS = 2_000
"""Minimum length of a string that is worth shortening."""
_MIN_TEXT_CHARACTERS = 1_000
_LONGEST_JSON = 250_000
"""Maximum length of a text that is compared as JSON: decoding a longer one could take seconds."""
_MAX_DEPTH = 64
_VALUE_OVERHEAD_CHARACTERS = 4


def estimate_characters(value: object, max_characters: int) -> int:
    """Estimate the characters of a JSON value; counting stops above ``max_characters``."""
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
    """Return whether a text has the same content as a structured value: its only string, or its JSON."""
    if isinstance(value, dict) and list(cast("dict[str, Any]", value).values()) == [text]:
        return True
    if len(text) > _LONGEST_JSON:
        return False
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def truncate_structured(value: object, max_characters: int, read_hint: str) -> object | None:
    """Return the same structure with long strings shortened, or None if the rest alone is too long.

    ``read_hint`` says how to read the full value.
    """
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
