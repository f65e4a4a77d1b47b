"""Render a call's arguments for review before approval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from toolyard.types.visible_text import visible

__all__ = ["LONG_VALUE_CHARACTERS", "key_summary", "review_text", "short_values_first"]

LONG_VALUE_CHARACTERS = 200
"""Characters of JSON above which a value counts as long."""


def review_text(arguments: object, *, indent: int | None = None) -> str | None:
    """Return all arguments as text, or None if they cannot be written as JSON.

    Keys and short values come before long values, so that a long value cannot push others out of view. Hidden
    characters are escaped.
    """
    if isinstance(arguments, str):
        return visible(arguments, spaces=True)
    try:
        text = json.dumps(short_values_first(arguments), ensure_ascii=False, indent=indent, default=str)
    except (ValueError, RecursionError):
        return None
    summary = key_summary(arguments)
    return visible(f"{summary}\n{text}" if summary else text, spaces=True)


def key_summary(arguments: object) -> str:
    """Return a line that lists all keys; empty if no value is long."""
    if not isinstance(arguments, Mapping):
        return ""
    members = cast("Mapping[str, object]", arguments)
    if len(members) < 2 or not any(
        _count_characters(value) > LONG_VALUE_CHARACTERS for value in members.values()
    ):
        return ""
    return f"{len(members)} arguments: {', '.join(map(_quote_key, members))}"


def short_values_first(value: object) -> object:
    """Return the same JSON with the members of each object ordered: short values before long ones."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        ordered = sorted(members, key=lambda key: _count_characters(members[key]) > LONG_VALUE_CHARACTERS)
        return {key: short_values_first(members[key]) for key in ordered}
    if isinstance(value, list | tuple):
        return [short_values_first(each) for each in cast("list[object]", value)]
    return value


def _count_characters(value: object) -> int:
    """Count the characters of a value, stopping slightly above the limit for long values."""
    if isinstance(value, str):
        return len(value)
    total = 0
    for each in _list_child_values(value):
        total += 2 + _count_characters(each)
        if total > LONG_VALUE_CHARACTERS:
            break
    return max(total, 2)


def _list_child_values(value: object) -> list[object]:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return [part for pair in members.items() for part in pair]
    return list(cast("list[object]", value)) if isinstance(value, list | tuple) else []


def _quote_key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)
