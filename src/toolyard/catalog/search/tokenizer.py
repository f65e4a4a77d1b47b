"""Text taken apart into the words that are compared: identifiers split, accents off, CJK in pairs.

``getHTTPResponse``, ``get_http_response`` and ``get-http-response`` have the same words. A word that is
written together out of parts (``GitHub``, ``base64``) counts as a whole and as its parts. Chinese, Japanese
and Korean text has no spaces, so that each pair of neighbouring characters is a word.
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
"""Lower-case words that are neither indexed nor asked for."""

WEAK_WORDS = frozenset(_WEAK_WORD_TEXT.split())
"""Lower-case words by which people wrap a request. They are looked for, but count for less."""


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
    """The text in its plain form: full-width as ordinary characters, Latin letters without accents."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(char for char in plain if not unicodedata.combining(char)))


def split_runs(text: str) -> list[str]:
    """The unbroken runs of letters and digits of folded text, as they are written."""
    return _RUN_PATTERN.findall(text)


def split_words(run: str) -> list[str]:
    """The lower-case words of one run: by capitals, by digits, CJK in pairs."""
    if run.isascii():
        if run.isalpha() and (run.islower() or run.istitle()):
            return [run.lower()]
        return [piece.lower() for piece in _WORD_PATTERN.findall(run)]
    found: list[str] = []
    place = 0
    for match in _CJK_PATTERN.finditer(run):
        found += _split_alphabetic(run[place : match.start()])
        found += _split_pairs(match[0])
        place = match.end()
    return found + _split_alphabetic(run[place:])


def extract_terms(run: str) -> tuple[str, ...]:
    """The stems of one run's words, stop words left out; a run of few parts is also there as a whole."""
    parts = split_words(run)
    found = [stem(part) for part in parts if part not in STOP_WORDS and len(part) <= _MAX_WORD_CHARS]
    if 1 < len(parts) <= _MAX_JOINED_PARTS and len(run) <= _MAX_JOINED_CHARS and run.isascii():
        found.append(stem(run.lower()))
    return tuple(found)


def _split_alphabetic(run: str) -> list[str]:
    if not run:
        return []
    if run.isascii():
        return [piece.lower() for piece in _WORD_PATTERN.findall(run)]
    return [run.casefold()]


def _split_pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]
