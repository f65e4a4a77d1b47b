"""Text taken apart into the words that are compared: identifiers split, accents off, CJK in pairs.

``getHTTPResponse``, ``get_http_response`` and ``get-http-response`` have the same words. A word that is
written together out of parts (``GitHub``, ``base64``) counts as a whole and as its parts. Chinese, Japanese
and Korean text has no spaces, so that each pair of neighbouring characters is a word.
"""

from __future__ import annotations

import re
import unicodedata

from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.stopwords import STOPPED

__all__ = ["folded", "pieces", "runs", "terms"]

_RUN = re.compile(r"[^\W_]+")
_PIECE = re.compile(
    r"[A-Z]+s(?![A-Za-z])|[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\x00-\x7f]+",
)
_JOINED_PARTS = 3
_LONGEST = 40
_LONGEST_JOINED = 24
_CJK = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+",
)


def folded(text: str) -> str:
    """The text in its plain form: full-width as ordinary characters, Latin letters without accents."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(char for char in plain if not unicodedata.combining(char)))


def runs(text: str) -> list[str]:
    """The unbroken runs of letters and digits of folded text, as they are written."""
    return _RUN.findall(text)


def pieces(run: str) -> list[str]:
    """The lower-case words of one run: by capitals, by digits, CJK in pairs."""
    if run.isascii():
        if run.isalpha() and (run.islower() or run.istitle()):
            return [run.lower()]
        return [piece.lower() for piece in _PIECE.findall(run)]
    found: list[str] = []
    place = 0
    for match in _CJK.finditer(run):
        found += _alphabetic(run[place : match.start()])
        found += _pairs(match[0])
        place = match.end()
    return found + _alphabetic(run[place:])


def terms(run: str) -> tuple[str, ...]:
    """The stems of one run's words, stop words left out; a run of few parts is also there as a whole."""
    parts = pieces(run)
    found = [stem(part) for part in parts if part not in STOPPED and len(part) <= _LONGEST]
    if 1 < len(parts) <= _JOINED_PARTS and len(run) <= _LONGEST_JOINED and run.isascii():
        found.append(stem(run.lower()))
    return tuple(found)


def _alphabetic(run: str) -> list[str]:
    if not run:
        return []
    if run.isascii():
        return [piece.lower() for piece in _PIECE.findall(run)]
    return [run.casefold()]


def _pairs(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]
