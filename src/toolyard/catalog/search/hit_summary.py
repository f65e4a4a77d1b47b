"""The few words that stand beside a hit, so that one can choose without reading whole definitions."""

from __future__ import annotations

import re

__all__ = ["brief"]

_END = re.compile(r"(?<=[.!?])\s|\n\s*\n|。")
_READ = 2_000
_WIDE = "\u2e80"
"""From here on a character says about as much as two, and costs a model as much or more."""


def brief(description: str, length: int = 64) -> str:
    """The first sentence of a description on one line, cut at a word where it is longer than ``length``.

    Chinese, Japanese and Korean characters count twice.
    """
    first = _END.split(description[:_READ].strip(), maxsplit=1)[0]
    line = " ".join(first.split()).rstrip(".。")
    if len(line) <= length and (line.isascii() or _width(line) <= length):
        return line
    cut = _narrowed(line, max(length - 1, 0))
    at_word = cut.rsplit(" ", 1)[0]
    return (at_word if 2 * len(at_word) > len(cut) else cut).rstrip(" ,;:-") + "…"


def _width(text: str) -> int:
    return sum(2 if char >= _WIDE else 1 for char in text)


def _narrowed(line: str, width: int) -> str:
    """As much of the beginning as is not wider."""
    taken = 0
    for at, char in enumerate(line):
        taken += 2 if char >= _WIDE else 1
        if taken > width:
            return line[:at]
    return line
