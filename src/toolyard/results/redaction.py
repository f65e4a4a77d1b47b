"""Take secrets out of a text: those that we know, and what looks like one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

__all__ = ["redact_secrets"]

REDACTED = "***"
MIN_SECRET_CHARS = 4
"""A known secret below this length would take ordinary words along with it."""
_MAX_PIECE_CHARS = 100_000

_SECRET_WORD_REGEX = (
    "token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|signature|credential|assertion|jwt"
)
_SECRET_NAME_REGEX = rf"[\w.-]*(?:{_SECRET_WORD_REGEX})s?"
_SECRET_QUERY_NAME_REGEX = (
    rf"(?:{_SECRET_NAME_REGEX}|key|sig|code|auth|authorization|code_verifier|session(?:[_-]?id)?)"
)

_SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A header in any notation; of a scheme that has one token only that goes, otherwise the rest of the line.
    (
        re.compile(
            r"""(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|set-cookie|cookie)"""
            r"""(["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|token)\s+[^\s"',;]+|[^"'\r\n]+)"""
        ),
        rf"\1\2{REDACTED}",
    ),
    # A scheme elsewhere. Words such as "Bearer token" and the parameters of a challenge are no secret.
    (
        re.compile(
            r"""(?i)\b(bearer|basic)(\s+)(?!(?:tokens?|auth\w*|scheme|credentials?|realm)\b|\w+=["'])"""
            r"""[\w.~+/-]{6,}=*"""
        ),
        rf"\1\2{REDACTED}",
    ),
    # The user's part of a URL, up to the last @ before the path: passwords may hold one.
    (re.compile(r"""(://)[^\s/?#"'<>]{1,2000}@"""), rf"\1{REDACTED}@"),
    (re.compile(rf"""(?i)([?&;#]{_SECRET_QUERY_NAME_REGEX}=)[^&;#\s"'<>]+"""), rf"\1{REDACTED}"),
    (
        re.compile(rf"""(?i)((["']){_SECRET_NAME_REGEX}\2\s*:\s*(["']))(?:(?!\3)[^\\]|\\.)+"""),
        rf"\1{REDACTED}",
    ),
    # Tokens that say what they are: JSON web tokens and the prefixes of well-known services.
    # A word is looked at once, from its beginning: it may be long, and hold the first letters many times.
    (
        re.compile(r"(?<![\w-])((?:(?!\beyJ)[\w-])*+)eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-)[\w-]{12,}"), REDACTED),
)


def redact_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without the secrets, each replaced by ``***``.

    Known values go in every spelling that errors quote them in: plain, in a URL, in JSON.
    """
    for spelling in sorted(set(_iter_spellings(secrets)), key=lambda each: (-len(each), each)):
        text = text.replace(spelling, REDACTED)
    return "".join(map(_redact_patterns, _split_text(text)))


def _redact_patterns(text: str) -> str:
    for pattern, instead in _SECRET_PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _split_text(text: str) -> Iterator[str]:
    """A long text in pieces that end between words: while a pattern looks, no other thread has a turn."""
    start = 0
    while len(text) - start > _MAX_PIECE_CHARS:
        middle, end = start + _MAX_PIECE_CHARS // 2, start + _MAX_PIECE_CHARS
        last = max(text.rfind("\n", middle, end), text.rfind(" ", middle, end))
        end = end if last < 0 else last + 1
        yield text[start:end]
        start = end
    yield text[start:] if start else text


def _iter_spellings(secrets: Iterable[str]) -> Iterator[str]:
    for secret in secrets:
        if len(secret) >= MIN_SECRET_CHARS:
            yield secret
            yield quote(secret, safe="", errors="replace")
            yield quote_plus(secret, errors="replace")
            yield json.dumps(secret)[1:-1]
            yield json.dumps(secret, ensure_ascii=False)[1:-1]
