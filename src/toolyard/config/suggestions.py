"""Guess what someone meant to write."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

__all__ = ["did_you_mean"]

_MOST_COMPARED = 200
_MOST_LISTED = 20


def did_you_mean(word: str, known: Iterable[str], *, otherwise: bool = True) -> str | None:
    """A hint that names the nearest known word; where none is near, the known ones, if ``otherwise``."""
    words = tuple(islice(known, _MOST_COMPARED))
    near = _nearest(word, words)
    if near is not None:
        return f"did you mean '{near}'?"
    if not otherwise or not words:
        return None
    return f"known here: {', '.join(words[:_MOST_LISTED])}{', ...' if len(words) > _MOST_LISTED else ''}"


@lru_cache(maxsize=512)  # the same key is often unknown in every entry of a file
def _nearest(word: str, words: tuple[str, ...]) -> str | None:
    import difflib  # only a mistake needs it, and it is slow to load

    by_fold = {_fold(candidate): candidate for candidate in words}
    near = difflib.get_close_matches(_fold(word), by_fold, n=1, cutoff=0.65)
    return by_fold[near[0]] if near else None


def _fold(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
