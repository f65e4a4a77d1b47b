"""Structured content that is too much: how much it is, and the same with its long texts shortened."""

from __future__ import annotations

import json
from typing import Any, cast

from toolyard.results.truncation import shorten

__all__ = ["says", "shortened", "weight"]

_LONG = 2_000
"""Characters from which on a text is worth shortening."""
_LEAST = 1_000
_LONGEST_JSON = 250_000
"""Characters of a text that is compared as JSON: decoding a longer one could take seconds."""
_DEPTH = 64
_VALUE = 4


def weight(value: object, most: int) -> int:
    """About how many characters a JSON value has; it is not counted on above ``most``."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        found = waiting.pop()
        if type(found) is str:
            total += len(found)
        elif isinstance(found, dict):
            fields = cast("dict[str, Any]", found)
            total += sum(map(len, fields)) + _VALUE * len(fields)
            waiting.extend(fields.values())
        elif isinstance(found, list):
            items = cast("list[object]", found)
            total += _VALUE * len(items)
            waiting.extend(items)
    return total


def says(text: str, value: object) -> bool:
    """Whether a text holds all that a structured content does: it is its only value, or its JSON."""
    if isinstance(value, dict) and list(cast("dict[str, Any]", value).values()) == [text]:
        return True
    if len(text) > _LONGEST_JSON:
        return False
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def shortened(value: object, room: int, where: str) -> object | None:
    """The same shape with its long texts shortened, ``where`` says how the whole is read; None where the rest
    alone would not fit."""
    longs = sum(1 for each in _texts(value) if len(each) > _LONG)
    share = max(_LEAST, room // max(1, longs))
    made = _shorter(value, share, where, 0)
    return made if weight(made, 2 * room) <= 2 * room else None


def _texts(value: object) -> list[str]:
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


def _shorter(value: object, share: int, where: str, depth: int) -> object:
    if isinstance(value, str):
        return shorten(value, share, where) if len(value) > _LONG else value
    if depth < _DEPTH and isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _shorter(each, share, where, depth + 1) for key, each in fields.items()}
    if depth < _DEPTH and isinstance(value, list):
        return [_shorter(each, share, where, depth + 1) for each in cast("list[object]", value)]
    return value
