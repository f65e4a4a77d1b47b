"""Words of a vocabulary that a misspelt or unfinished word may stand for."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

__all__ = ["Nearby"]

_SHORTEST = 4
_LONGEST = 24
_LONG = 8
_TRIED = 24
_TAKEN = 3
_BEGUN = 0.8
_ONE_OFF = 0.7
_TWO_OFF = 0.5


class Nearby:
    """A growing vocabulary by first letter and trigram: nobody misspells the first letter.

    ``terms`` is the owner's list and may grow between calls.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._read = 0
        self._places: dict[str, array[int]] = {}

    def find(self, word: str, known: Callable[[str], bool]) -> list[tuple[str, float]]:
        """The terms nearest to a word among those that are ``known``, best first, each with how sure it is,
        at most 1."""
        if not _SHORTEST <= len(word) <= _LONGEST or not _is_plain(word):
            return []
        self._read_on()
        places, first = self._places, word[0]
        shared = Counter(chain.from_iterable([places.get(first + gram, ()) for gram in _trigrams(word)]))
        allowed = 2 if len(word) >= _LONG else 1
        least = max(2, len(word) - 3 * allowed)
        found: list[tuple[float, str]] = []
        likely = sorted((-count, self._terms[place]) for place, count in shared.items() if count >= least)
        for _, term in likely:
            sure = _likeness(word, term, allowed)
            if sure and known(term):
                found.append((-sure, term))
                if len(found) >= _TRIED:
                    break
        return [(term, -sure) for sure, term in sorted(found)[:_TAKEN]]

    def _read_on(self) -> None:
        for place in range(self._read, len(self._terms)):
            term = self._terms[place]
            if _SHORTEST <= len(term) <= _LONGEST and _is_plain(term):
                for gram in _trigrams(term):
                    self._places.setdefault(term[0] + gram, array("I")).append(place)
        self._read = len(self._terms)


def _is_plain(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _trigrams(word: str) -> set[str]:
    marked = f"^{word}$"
    return {marked[at : at + 3] for at in range(len(marked) - 2)}


def _likeness(word: str, term: str, allowed: int) -> float:
    if term.startswith(word):
        return _BEGUN * len(word) / len(term)
    if word[0] != term[0] or abs(len(word) - len(term)) > allowed:
        return 0.0
    edits = _edits(word, term)
    if edits > allowed:
        return 0.0
    return _ONE_OFF if edits <= 1 else _TWO_OFF


def _edits(one: str, other: str) -> int:
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
