"""Words of a vocabulary that a misspelt or unfinished word may stand for."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

__all__ = ["FuzzyMatcher"]

_MIN_WORD_CHARS = 4
_MAX_WORD_CHARS = 24
_TWO_EDITS_MIN_CHARS = 8
_MAX_CANDIDATES = 24
_MAX_MATCHES = 3
_PREFIX_CONFIDENCE = 0.8
_ONE_EDIT_CONFIDENCE = 0.7
_TWO_EDITS_CONFIDENCE = 0.5


class FuzzyMatcher:
    """A growing vocabulary by first letter and trigram: nobody misspells the first letter.

    ``terms`` is the owner's list and may grow between calls.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._indexed_count = 0
        self._terms_by_trigram: dict[str, array[int]] = {}

    def find(self, word: str, is_known: Callable[[str], bool]) -> list[tuple[str, float]]:
        """The terms nearest to a word among those that are ``known``, best first, each with how sure it is,
        at most 1."""
        if not _MIN_WORD_CHARS <= len(word) <= _MAX_WORD_CHARS or not _is_ascii_word(word):
            return []
        self._index_new_terms()
        places, first = self._terms_by_trigram, word[0]
        shared = Counter(
            chain.from_iterable([places.get(first + gram, ()) for gram in _split_trigrams(word)])
        )
        allowed = 2 if len(word) >= _TWO_EDITS_MIN_CHARS else 1
        least = max(2, len(word) - 3 * allowed)
        found: list[tuple[float, str]] = []
        likely = sorted((-count, self._terms[place]) for place, count in shared.items() if count >= least)
        for _, term in likely:
            sure = _match_confidence(word, term, allowed)
            if sure and is_known(term):
                found.append((-sure, term))
                if len(found) >= _MAX_CANDIDATES:
                    break
        return [(term, -sure) for sure, term in sorted(found)[:_MAX_MATCHES]]

    def _index_new_terms(self) -> None:
        for place in range(self._indexed_count, len(self._terms)):
            term = self._terms[place]
            if _MIN_WORD_CHARS <= len(term) <= _MAX_WORD_CHARS and _is_ascii_word(term):
                for gram in _split_trigrams(term):
                    self._terms_by_trigram.setdefault(term[0] + gram, array("I")).append(place)
        self._indexed_count = len(self._terms)


def _is_ascii_word(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _split_trigrams(word: str) -> set[str]:
    marked = f"^{word}$"
    return {marked[at : at + 3] for at in range(len(marked) - 2)}


def _match_confidence(word: str, term: str, allowed: int) -> float:
    if term.startswith(word):
        return _PREFIX_CONFIDENCE * len(word) / len(term)
    if word[0] != term[0] or abs(len(word) - len(term)) > allowed:
        return 0.0
    edits = _edit_distance(word, term)
    if edits > allowed:
        return 0.0
    return _ONE_EDIT_CONFIDENCE if edits <= 1 else _TWO_EDITS_CONFIDENCE


def _edit_distance(one: str, other: str) -> int:
    """Letters to put in, take out, change or swap with their neighbour."""
    start, least = 0, min(len(one), len(other))
    while start < least and one[start] == other[start]:
        start += 1
    end = 0
    while end < least - start and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        before, last, row = row, before, [at]
        for to, wanted in enumerate(other, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != wanted))
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted:
                cost = min(cost, last[to - 2] + 1)
            row.append(cost)
    return row[-1]
