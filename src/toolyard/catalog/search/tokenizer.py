"""Tokenizer for queries and definitions: splits identifiers, removes accents, and pairs CJK characters.

``getHTTPResponse``, ``get_http_response`` and ``get-http-response`` have the same words. A compound such as
``GitHub`` or ``base64`` is indexed as a whole and as its parts. Chinese, Japanese and Korean text has no
spaces, so each pair of adjacent characters is a word (bigrams).
"""

from __future__ import annotations

import re
import unicodedata

from toolyard.catalog.search.stemmer import stem

__all__ = ["STOP_WORDS", "WEAK_WORDS", "extract_terms", "fold_text", "split_runs", "split_words"]


_STOP_WORD_TEXT = """
a about all also am an and any are aren as at be been being both but by can could d did didn do does
doesn doing don done e each eg etc few for from g had has have having he her here hers him his how i
id ie if im in into is isn it its itself ive just let lets ll m may me might mine more most must my
no nor not of on only onto or other our ours over own per please re s same shall she should so some
such t than that the their theirs them then there these they this those to too under us ve very via
was wasn we were what when where which who whom whose why will with without would you your yours
"""

_WEAK_WORD_TEXT = """
able additionally after api assist based before best certain check checking currently detail details
different ensure fetch finally find finding first furthermore get getting give given gives giving
good great hello help helping hey hi include included includes including info information interested
know lastly like look looking looks make makes making moreover need needs new next obtain obtaining
ok okay particular plan planning plans provide providing question questions really recommend
recommends retrieve retrieving second see show showing shows specific suggest suggesting suggestions
task tasks tell thank thanks third tool tools trying use used uses using various want wants wish
wondering working
"""

STOP_WORDS = frozenset(_STOP_WORD_TEXT.split())
"""Lower-case words that are neither indexed nor searched for."""

WEAK_WORDS = frozenset(_WEAK_WORD_TEXT.split())
"""Lower-case filler words of requests ("help me find"). They are searched for with a lower weight."""


_RUN_PATTERN = re.compile(r"[^\W_]+")
_WORD_PATTERN = re.compile(
    r"[A-Z]+s(?![A-Za-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x00-\x7f]+",
)
_MAX_JOINED_PARTS = 3
_MAX_WORD_CHARS = 40
_MAX_JOINED_CHARS = 24
_CJK_PATTERN = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+",
)


def fold_text(text: str) -> str:
    """Return the text with full-width characters replaced by ordinary ones and accents removed."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(char for char in plain if not unicodedata.combining(char)))


def split_runs(text: str) -> list[str]:
    """Return the runs of letters and digits in folded text, with their case."""
    return _RUN_PATTERN.findall(text)


def split_words(run: str) -> list[str]:
    """Split one run into lower-case words at capitals and digits, and CJK text into pairs of characters."""
    if run.isascii():
        if run.isalpha() and (run.islower() or run.istitle()):
            return [run.lower()]
        return [piece.lower() for piece in _WORD_PATTERN.findall(run)]
    words: list[str] = []
    position = 0
    for match in _CJK_PATTERN.finditer(run):
        words += _split_alphabetic(run[position : match.start()])
        words += _split_pairs(match[0])
        position = match.end()
    return words + _split_alphabetic(run[position:])


def extract_terms(run: str) -> tuple[str, ...]:
    """Return the stems of a run's words without stop words, and of the whole run if it has few parts."""
    parts = split_words(run)
    terms = [stem(part) for part in parts if part not in STOP_WORDS and len(part) <= _MAX_WORD_CHARS]
    if 1 < len(parts) <= _MAX_JOINED_PARTS and len(run) <= _MAX_JOINED_CHARS and run.isascii():
        terms.append(stem(run.lower()))
    return tuple(terms)


def _split_alphabetic(run: str) -> list[str]:
    if not run:
        return []
    if run.isascii():
        return [piece.lower() for piece in _WORD_PATTERN.findall(run)]
    return [run.casefold()]


def _split_pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[position : position + 2] for position in range(len(run) - 1)]
