"""Counting of the values in JSON text before decoding it, because decoding cannot be interrupted."""

from __future__ import annotations

import re

__all__ = ["has_more_values"]

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def has_more_values(text: str, limit: int) -> bool:
    """Return True if JSON text has more than ``limit`` values. Delimiters inside strings do not count."""
    # Counting all delimiters, also inside strings, is fast and enough to rule out most texts.
    if _count_delimiters(text) < limit:
        return False
    outside = position = 0
    for string in _STRING.finditer(text):
        outside += _count_delimiters(text[position : string.start()])
        position = string.end()
        if outside >= limit:
            return True
    return outside + _count_delimiters(text[position:]) >= limit


def _count_delimiters(text: str) -> int:
    """Count commas, colons and opening brackets: each value but the first is preceded by one."""
    return text.count(",") + text.count(":") + text.count("[") + text.count("{")
