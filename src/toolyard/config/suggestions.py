"""Guess what someone meant to write."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

__all__ = ["did_you_mean"]

_MAX_COMPARED_WORDS = 200
_MAX_LISTED_WORDS = 20


def did_you_mean(word: str, known_words: Iterable[str], *, list_known: bool = True) -> str | None:
    """A hint that names the nearest known word; where none is near, the known ones, if ``otherwise``."""
    words = tuple(islice(known_words, _MAX_COMPARED_WORDS))
    near = _find_nearest(word, words)
    if near is not None:
        return f"did you mean '{near}'?"
    if not list_known or not words:
        return None
    return (
        f"known here: {', '.join(words[:_MAX_LISTED_WORDS])}"
        f"{', ...' if len(words) > _MAX_LISTED_WORDS else ''}"
    )


@lru_cache(maxsize=512)  # the same key is often unknown in every entry of a file
def _find_nearest(word: str, words: tuple[str, ...]) -> str | None:
    import difflib  # only a mistake needs it, and it is slow to load

    by_fold = {_fold_word(candidate): candidate for candidate in words}
    near = difflib.get_close_matches(_fold_word(word), by_fold, n=1, cutoff=0.65)
    return by_fold[near[0]] if near else None


def _fold_word(word: str) -> str:
    return word.casefold().replace("_", "").replace("-", "")
