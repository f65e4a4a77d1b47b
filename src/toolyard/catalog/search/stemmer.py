"""Light English stemmer: maps ``searching`` and ``searches`` to the same stem.

Endings are removed by rule, and only if enough of the word is left. The only word list is that of irregular
forms that are common in tool descriptions. A stem need not be a word; it is only compared with other stems.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["stem"]

_MAX_CACHED_STEMS = 15_000
_MIN_STEM_CHARS = 3
_LONG_WORD_CHARS = 5
_MAX_STEMMED_CHARS = 24
_VOWELS = frozenset("aeiouy")
_REDUCIBLE_CONSONANTS = frozenset("bdfgmnprt")

_IRREGULAR_STEMS = {
    "bought": "buy",
    "built": "build",
    "children": "child",
    "comparison": "compar",
    "comparisons": "compar",
    "conversion": "convert",
    "conversions": "convert",
    "criteria": "criterion",
    "data": "data",
    "description": "describ",
    "descriptions": "describ",
    "does": "do",
    "found": "find",
    "indices": "index",
    "made": "make",
    "matrices": "matrix",
    "media": "media",
    "men": "man",
    "news": "news",
    "people": "person",
    "ran": "run",
    "running": "run",
    "sent": "send",
    "series": "series",
    "sold": "sell",
    "status": "status",
    "taken": "take",
    "took": "take",
    "vertices": "vertex",
    "wrote": "write",
    "written": "write",
    "women": "woman",
}

# Ending, replacement, and minimum number of letters before the ending. The first ending that matches decides,
# so longer endings come first.
_SUFFIX_RULES = (
    ("ization", "ize", 3),
    ("isation", "ize", 3),
    ("ational", "ate", 3),
    ("fulness", "", 3),
    ("ousness", "", 3),
    ("iveness", "", 3),
    ("ability", "", 4),
    ("ibility", "", 4),
    ("ological", "olog", 2),
    ("ically", "ic", 3),
    ("ication", "ic", 4),
    ("ations", "ate", 3),
    ("ation", "ate", 3),
    ("ators", "ate", 3),
    ("ator", "ate", 3),
    ("ology", "olog", 2),
    ("very", "v", 3),
    ("ement", "e", 4),
    ("ments", "", 4),
    ("ment", "", 4),
    ("ness", "", 4),
    ("able", "", 4),
    ("ible", "", 4),
    ("ance", "", 4),
    ("ence", "", 4),
    ("ical", "ic", 3),
    ("ssion", "ss", 3),
    ("tion", "t", 3),
    ("sion", "s", 4),
    ("tive", "t", 4),
    ("ful", "", 4),
    ("ist", "", 5),
    ("ity", "", 4),
    ("ize", "", 4),
    ("ise", "", 4),
    ("ers", "", 4),
    ("ors", "", 4),
    ("er", "", 4),
    ("or", "", 4),
    ("ly", "", 4),
    ("al", "", 4),
)

_RULES_BY_LAST_LETTERS = {
    letters: tuple(each for each in _SUFFIX_RULES if each[0].endswith(letters))
    for letters in {ending[-2:] for ending, _, _ in _SUFFIX_RULES}
}


@lru_cache(_MAX_CACHED_STEMS)
def stem(word: str) -> str:
    """Return the stem of a lower-case word. Words with other than ASCII letters are returned unchanged."""
    if word in _IRREGULAR_STEMS:
        return _IRREGULAR_STEMS[word]
    if not _MIN_STEM_CHARS < len(word) <= _MAX_STEMMED_CHARS or not (word.isascii() and word.isalpha()):
        return word
    # "analyse", "analyze", "analysis" and "analytics" lose too different endings for the rules below.
    if word.startswith("analy"):
        return "analys"
    if word.endswith("s"):
        word = _strip_plural(word)
    if word.endswith(("ing", "ed")):
        word = _strip_inflection(word)
    if word[-2:] in _RULES_BY_LAST_LETTERS:
        word = _strip_derivation(word)
    return _normalize_ending(word)


def _strip_plural(word: str) -> str:
    if word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def _strip_inflection(word: str) -> str:
    rest = word[:-3] if word.endswith("ing") else word[:-2]
    if len(rest) < _MIN_STEM_CHARS or _VOWELS.isdisjoint(rest):
        return word
    if rest[-1] == rest[-2] and rest[-1] in _REDUCIBLE_CONSONANTS:
        return rest[:-1]
    return rest + "e" if rest.endswith(("at", "bl", "iz")) else rest


def _strip_derivation(word: str) -> str:
    for ending, replacement, min_chars in _RULES_BY_LAST_LETTERS[word[-2:]]:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if len(rest) >= min_chars and not _VOWELS.isdisjoint(rest):
                return rest + replacement
            return word
    return word


def _normalize_ending(word: str) -> str:
    # Verbs and nouns reach this point with or without a final "e", "y" or doubled consonant, depending on the
    # ending they lost ("create", "creating", "creation"). Dropping these makes the stems equal.
    if word.endswith("y") and len(word) > _MIN_STEM_CHARS:
        word = word[:-1] if len(word) > _LONG_WORD_CHARS else word[:-1] + "i"
    if word.endswith("e") and len(word) > _MIN_STEM_CHARS:
        word = word[:-1]
    if word.endswith("at") and len(word) > _LONG_WORD_CHARS + 2:
        word = word[:-2]
    if len(word) > _MIN_STEM_CHARS and word[-1] == word[-2] and word[-1] in _REDUCIBLE_CONSONANTS:
        word = word[:-1]
    return word
