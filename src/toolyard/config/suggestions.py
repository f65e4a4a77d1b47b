"""Suggestions for misspelled words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

__all__ = ["did_you_mean"]

_MAX_COMPARED_WORDS = 200
_MAX_LISTED_WORDS = 20


def did_you_mean(word: str, known_words: Iterable[str], *, list_known: bool = True) -> str | None:
    """Return a hint with the most similar word; if there is none, the known words if ``list_known``."""
    words = tuple(islice(known_words, _MAX_COMPARED_WORDS))
    nearest = _find_nearest(word, words)
    if nearest is not None:
        return f"did you mean '{nearest}'?"
    if not list_known or not words:
        return None
    return f"known: {', '.join(words[:_MAX_LISTED_WORDS])}{', ...' if len(words) > _MAX_LISTED_WORDS else ''}"


@lru_cache(maxsize=512)  # the same unknown key often occurs in every entry of a file
def _find_nearest(word: str, words: tuple[str, ...]) -> str | None:
    import difflib  # slow to import, and needed after a mistake only

    by_folded_word = {_fold_word(candidate): candidate for candidate in words}
    similar = difflib.get_close_matches(_fold_word(word), by_folded_word, n=1, cutoff=0.65)
    return by_folded_word[similar[0]] if similar else None


def _fold_word(word: str) -> str:
    # Treat allow_tools, allow-tools and allowTools as equal.
    return word.casefold().replace("_", "").replace("-", "")
