"""One-line summaries of tool descriptions, shown in search results and lists."""

from __future__ import annotations

import re

__all__ = ["summarize_description"]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n\s*\n|。")
_MAX_READ_CHARS = 2_000
_FIRST_WIDE_CHARACTER = "\u2e80"
"""First character counted with width 2: CJK characters carry about as much meaning as two Latin letters, and
cost a model as many tokens or more."""


def summarize_description(description: str, length: int = 64) -> str:
    """Return the first sentence on one line, truncated at a word boundary to ``length`` columns.

    Chinese, Japanese and Korean characters count as two columns.
    """
    first = _SENTENCE_END.split(description[:_MAX_READ_CHARS].strip(), maxsplit=1)[0]
    line = " ".join(first.split()).rstrip(".。")
    if len(line) <= length and (line.isascii() or _display_width(line) <= length):
        return line
    cut = _truncate_to_width(line, max(length - 1, 0))
    whole_words = cut.rsplit(" ", 1)[0]
    # One very long word would otherwise reduce the summary to almost nothing.
    return (whole_words if 2 * len(whole_words) > len(cut) else cut).rstrip(" ,;:-") + "…"


def _display_width(text: str) -> int:
    return sum(2 if char >= _FIRST_WIDE_CHARACTER else 1 for char in text)


def _truncate_to_width(line: str, width: int) -> str:
    """Return the longest prefix of at most ``width`` columns."""
    columns = 0
    for index, char in enumerate(line):
        columns += 2 if char >= _FIRST_WIDE_CHARACTER else 1
        if columns > width:
            return line[:index]
    return line
