"""Fuzzy matching of misspelt or incomplete words against the indexed terms.

Candidates are the terms that share enough trigrams with the word. Only for these the edit distance is
computed, because it costs far more than counting trigrams and a vocabulary has tens of thousands of terms.
"""

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
    """Trigram index of a growing list of terms.

    The index is partitioned by first letter, since people rarely misspell the first letter of a word.
    ``terms`` belongs to the caller, who may append to it between calls; it must not shrink.
    """

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._indexed_count = 0
        self._terms_by_trigram: dict[str, array[int]] = {}

    def find(self, word: str, is_known: Callable[[str], bool]) -> list[tuple[str, float]]:
        """Return the terms closest to ``word`` with their confidence (0 to 1), best first.

        Only terms accepted by ``is_known`` are returned: it hides terms of tools outside the caller's view.
        """
        if not _MIN_WORD_CHARS <= len(word) <= _MAX_WORD_CHARS or not _is_ascii_word(word):
            return []
        self._index_new_terms()
        positions, first_letter = self._terms_by_trigram, word[0]
        shared = Counter(
            chain.from_iterable([positions.get(first_letter + gram, ()) for gram in _split_trigrams(word)])
        )
        max_edits = 2 if len(word) >= _TWO_EDITS_MIN_CHARS else 1
        # A word has as many trigrams as letters (with both end marks), and one edit changes at most three.
        min_shared = max(2, len(word) - 3 * max_edits)
        matches: list[tuple[float, str]] = []
        candidates = sorted(
            (-count, self._terms[position]) for position, count in shared.items() if count >= min_shared
        )
        for _, term in candidates:
            confidence = _match_confidence(word, term, max_edits)
            if confidence and is_known(term):
                matches.append((-confidence, term))
                # Candidates come with most shared trigrams first, so that the best matches are among the
                # first few.
                if len(matches) >= _MAX_CANDIDATES:
                    break
        return [(term, -negated) for negated, term in sorted(matches)[:_MAX_MATCHES]]

    def _index_new_terms(self) -> None:
        # Done by the first search after an update, so that catalogues without misspelt queries never pay for
        # it.
        for position in range(self._indexed_count, len(self._terms)):
            term = self._terms[position]
            if _MIN_WORD_CHARS <= len(term) <= _MAX_WORD_CHARS and _is_ascii_word(term):
                for gram in _split_trigrams(term):
                    self._terms_by_trigram.setdefault(term[0] + gram, array("I")).append(position)
        self._indexed_count = len(self._terms)


def _is_ascii_word(word: str) -> bool:
    return word.isascii() and word.isalpha()


def _split_trigrams(word: str) -> set[str]:
    # The marks make the first and the last letters count as trigrams too.
    marked = f"^{word}$"
    return {marked[at : at + 3] for at in range(len(marked) - 2)}


def _match_confidence(word: str, term: str, max_edits: int) -> float:
    """Return how likely ``word`` means ``term``: 0 if it is neither a prefix nor within ``max_edits``."""
    if term.startswith(word):
        return _PREFIX_CONFIDENCE * len(word) / len(term)
    if word[0] != term[0] or abs(len(word) - len(term)) > max_edits:
        return 0.0
    edits = _edit_distance(word, term)
    if edits > max_edits:
        return 0.0
    return _ONE_EDIT_CONFIDENCE if edits <= 1 else _TWO_EDITS_CONFIDENCE


def _edit_distance(one: str, other: str) -> int:
    """Return the number of insertions, deletions, substitutions and swaps of adjacent letters.

    This is the optimal string alignment distance: no letter is edited twice.
    """
    # A common prefix and suffix do not change the distance; without them the table below is small.
    start, shorter = 0, min(len(one), len(other))
    while start < shorter and one[start] == other[start]:
        start += 1
    end = 0
    while end < shorter - start and one[-1 - end] == other[-1 - end]:
        end += 1
    one, other = one[start : len(one) - end], other[start : len(other) - end]
    # Dynamic programming over three rows: the current one, the previous one, and for swaps the one before.
    previous: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        previous, before_previous, row = row, previous, [i]
        for j, other_letter in enumerate(other, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == other_letter:
                cost = min(cost, before_previous[j - 2] + 1)
            row.append(cost)
    return row[-1]
