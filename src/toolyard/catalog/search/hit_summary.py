"""The few words that stand beside a hit, so that one can choose without reading whole definitions."""

from __future__ import annotations

import re

__all__ = ["summarize_description"]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n|。")
_MAX_READ_CHARS = 2_000
_FIRST_WIDE_CHARACTER = "\u2e80"
"""From here on a character says about as much as two, and costs a model as much or more."""


def summarize_description(description: str, length: int = 64) -> str:
    """The first sentence of a description on one line, cut at a word where it is longer than ``length``.

    Chinese, Japanese and Korean characters count twice.
    """
    first = _SENTENCE_END.split(description[:_MAX_READ_CHARS].strip(), maxsplit=1)[0]
    line = " ".join(first.split()).rstrip(".。")
    if len(line) <= length and (line.isascii() or _display_width(line) <= length):
        return line
    cut = _truncate_to_width(line, max(length - 1, 0))
    at_word = cut.rsplit(" ", 1)[0]
    return (at_word if 2 * len(at_word) > len(cut) else cut).rstrip(" ,;:-") + "…"


def _display_width(text: str) -> int:
    return sum(2 if char >= _FIRST_WIDE_CHARACTER else 1 for char in text)


def _truncate_to_width(line: str, width: int) -> str:
    """As much of the beginning as is not wider."""
    taken = 0
    for at, char in enumerate(line):
        taken += 2 if char >= _FIRST_WIDE_CHARACTER else 1
        if taken > width:
            return line[:at]
    return line
