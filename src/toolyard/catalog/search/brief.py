"""The few words that stand beside a hit, so that one can choose without reading whole definitions."""

from __future__ import annotations

import re

__all__ = ["brief"]

_END = re.compile(r"(?<=[.!?])\s|\n\s*\n|。")
_READ = 2_000


def brief(description: str, length: int = 64) -> str:
    """The first sentence of a description on one line, cut at a word where it is longer than ``length``."""
    first = _END.split(description[:_READ].strip(), maxsplit=1)[0]
    line = " ".join(first.split()).rstrip(".。")
    if len(line) <= length:
        return line
    cut = line[: max(length - 1, 0)]
    at_word = cut.rsplit(" ", 1)[0]
    return (at_word if 2 * len(at_word) > length else cut).rstrip(" ,;:-") + "…"
