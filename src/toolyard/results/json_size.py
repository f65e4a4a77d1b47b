"""Estimates of the size of JSON values and of results, without encoding them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from toolyard.types.json_values import object_or_empty
from toolyard.types.tool import ResultLimits

__all__ = ["estimate_characters", "get_media_data", "is_large", "is_within_limits"]

_LARGE_MIN_CHARS = 1_000_000
_CHARS_PER_VALUE = 100
"""Number of characters that take about as long as one more value."""
_BITS_PER_VALUE = 8
"""Bits of an integer beyond 64 bits that count as one more value: the time to write one is quadratic."""
_MEDIA_BLOCK_TYPES = ("image", "audio")


def is_large(value: object) -> bool:
    """Return True if a JSON value has so many parts, or so much text, that handling it takes long."""
    return estimate_characters(value, _LARGE_MIN_CHARS, per_value=_CHARS_PER_VALUE) >= _LARGE_MIN_CHARS


def estimate_characters(value: object, max_characters: int, *, per_value: int = 4) -> int:
    """Estimate the characters of a JSON value, with ``per_value`` for each member and item, and more for long
    integers. Counting stops above ``max_characters``."""
    total, values = 0, list[Any]((value,))
    # The list grows while it is read.
    for found in values:
        kind = type(found)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            total += len(found)
        elif issubclass(kind, dict):
            total += sum(map(len, found)) + per_value * len(found)
            values += found.values()
        elif issubclass(kind, list):
            total += per_value * len(found)
            values += found
        elif kind is int and (bits := found.bit_length()) > 64:
            total += per_value * bits // _BITS_PER_VALUE
        if total > max_characters:
            break
    return total


def is_within_limits(result: Mapping[str, Any], limits: ResultLimits) -> bool:
    """Return whether a result certainly fits. Fast for the most common case, one short text."""
    content, structured = result.get("content"), result.get("structuredContent")
    if type(content) is not list:
        return True
    room = limits.characters
    for block in cast("list[object]", content):
        found = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        if type(text := found.get("text")) is str and found.get("type") == "text":
            room -= len(text)
        elif (data := get_media_data(found)) is None:
            room -= estimate_characters(cast("object", block), room)
        elif len(data) * 3 > limits.media_bytes * 4:
            return False
        if room < 0:
            return False
    return structured is None or estimate_characters(structured, limits.characters) <= limits.characters


def get_media_data(block: object) -> str | None:
    """Return the base64 data of a picture or audio block."""
    found = object_or_empty(block)
    data = found.get("data")
    return data if found.get("type") in _MEDIA_BLOCK_TYPES and isinstance(data, str) else None
