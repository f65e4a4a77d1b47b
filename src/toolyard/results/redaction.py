"""Take secrets out of a text: those that we know, and what looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["redact"]

GONE = "***"
SHORTEST = 4
"""A known secret below this length would take ordinary words along with it."""
_PIECE = 100_000

_SECRET_WORD = (
    "token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|signature|credential|assertion|jwt"
)
_SECRET_NAME = rf"[\w.-]*(?:{_SECRET_WORD})s?"
_QUERY_NAME = rf"(?:{_SECRET_NAME}|key|sig|code|auth|authorization|code_verifier|session(?:[_-]?id)?)"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A header in any notation; of a scheme that has one token only that goes, otherwise the rest of the line.
    (
        re.compile(
            r"""(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|set-cookie|cookie)"""
            r"""(["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|token)\s+[^\s"',;]+|[^"'\r\n]+)"""
        ),
        rf"\1\2{GONE}",
    ),
    # A scheme elsewhere. Words such as "Bearer token" and the parameters of a challenge are no secret.
    (
        re.compile(
            r"""(?i)\b(bearer|basic)(\s+)(?!(?:tokens?|auth\w*|scheme|credentials?|realm)\b|\w+=["'])"""
            r"""[\w.~+/-]{6,}=*"""
        ),
        rf"\1\2{GONE}",
    ),
    # The user's part of a URL, up to the last @ before the path: passwords may hold one.
    (re.compile(r"""(://)[^\s/?#"'<>]{1,2000}@"""), rf"\1{GONE}@"),
    (re.compile(rf"""(?i)([?&;#]{_QUERY_NAME}=)[^&;#\s"'<>]+"""), rf"\1{GONE}"),
    (re.compile(rf"""(?i)((["']){_SECRET_NAME}\2\s*:\s*(["']))(?:(?!\3)[^\\]|\\.)+"""), rf"\1{GONE}"),
    # Tokens that say what they are: JSON web tokens and the prefixes of well-known services.
    # A word is looked at once, from its beginning: it may be long, and hold the first letters many times.
    (
        re.compile(r"(?<![\w-])((?:(?!\beyJ)[\w-])*+)eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"),
        rf"\1{GONE}",
    ),
    (re.compile(r"\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-)[\w-]{12,}"), GONE),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the secrets, each replaced by ``***``.

    Known values go in every spelling that errors quote them in: plain, in a URL, in JSON.
    """
    for spelling in sorted(set(_spellings(secrets)), key=lambda each: (-len(each), each)):
        text = text.replace(spelling, GONE)
    return "".join(map(_without_patterns, _pieces(text)))


def _without_patterns(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that end between words: while a pattern looks, no other thread has a turn."""
    start = 0
    while len(text) - start > _PIECE:
        middle, end = start + _PIECE // 2, start + _PIECE
        last = max(text.rfind("\n", middle, end), text.rfind(" ", middle, end))
        end = end if last < 0 else last + 1
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _spellings(secrets: Iterable[str]) -> Iterator[str]:
    for secret in secrets:
        if len(secret) >= SHORTEST:
            yield secret
            yield quote(secret, safe="", errors="replace")
            yield quote_plus(secret, errors="replace")
            yield json.dumps(secret)[1:-1]
            yield json.dumps(secret, ensure_ascii=False)[1:-1]
