"""Count the values of JSON text before it is decoded, because decoding cannot be interrupted."""

from __future__ import annotations

import re

__all__ = ["has_more_values"]

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def has_more_values(text: str, limit: int) -> bool:
    """Return whether JSON text holds more than ``limit`` values. Marks inside strings do not count."""
    if _marks(text) < limit:
        return False
    outside = position = 0
    for string in _STRING.finditer(text):
        outside += _marks(text[position : string.start()])
        position = string.end()
        if outside >= limit:
            return True
    return outside + _marks(text[position:]) >= limit


def _marks(text: str) -> int:
    """Commas, colons and brackets: each value but the first comes with one."""
    return text.count(",") + text.count(":") + text.count("[") + text.count("{")
