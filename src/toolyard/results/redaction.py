"""Redaction of secrets in texts: known values, and strings that look like secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast
from urllib.parse import quote, quote_plus

__all__ = ["redact_known_secrets", "redact_secrets"]

REDACTED = "***"
MIN_SECRET_CHARS = 4
"""Minimum length of a known secret; replacing shorter ones would garble ordinary words."""
_MAX_PIECE_CHARS = 100_000

_SECRET_WORD_REGEX = (
    "token|secret|password|passwd|pwd|api[_-]?key|access[_-]?key|signature|credential|assertion|jwt"
)
_SECRET_NAME_REGEX = rf"[\w.-]*(?:{_SECRET_WORD_REGEX})s?"
_SECRET_QUERY_NAME_REGEX = (
    rf"(?:{_SECRET_NAME_REGEX}|key|sig|code|auth|authorization|code_verifier|session(?:[_-]?id)?)"
)

_SECRET_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # A header in any notation. With a scheme that takes one token only the token is redacted, otherwise the
    # rest of the line.
    (
        re.compile(
            r"""(?i)\b((?:proxy-)?authorization|x-api-key|api-key|x-auth-token|set-cookie|cookie)"""
            r"""(["']?\s*[:=]\s*["']?)(?:(?:bearer|basic|token)\s+[^\s"',;]+|[^"'\r\n]+)"""
        ),
        rf"\1\2{REDACTED}",
    ),
    # A scheme elsewhere. Phrases such as "Bearer token" and the parameters of a challenge are not secret.
    (
        re.compile(
            r"""(?i)\b(bearer|basic)(\s+)(?!(?:tokens?|auth\w*|scheme|credentials?|realm)\b|\w+=["'])"""
            r"""[\w.~+/-]{6,}=*"""
        ),
        rf"\1\2{REDACTED}",
    ),
    # The user information of a URL, up to the last "@" before the path, since passwords may contain one.
    (re.compile(r"""(://)[^\s/?#"'<>]{1,2000}@"""), rf"\1{REDACTED}@"),
    (re.compile(rf"""(?i)([?&;#]{_SECRET_QUERY_NAME_REGEX}=)[^&;#\s"'<>]+"""), rf"\1{REDACTED}"),
    (
        re.compile(rf"""(?i)((["']){_SECRET_NAME_REGEX}\2\s*:\s*(["']))(?:(?!\3)[^\\]|\\.)+"""),
        rf"\1{REDACTED}",
    ),
    # JSON web tokens, and tokens with the prefixes of well-known services. The possessive quantifiers scan
    # each word only once: a long word with many occurrences of "eyJ" would otherwise take quadratic time. The
    # lookahead with a reference does the same, where Python 3.11.2 has a defect in possessive quantifiers.
    (
        re.compile(r"(?<![\w-])(?=((?:(?!\beyJ)[\w-])*))\1eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*+"),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\b(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeoprs]-)[\w-]{12,}"), REDACTED),
)


def redact_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text with each secret replaced by ``***``.

    Known values are replaced in every encoding in which errors quote them: plain, URL-encoded, and as JSON.
    """
    text = _replace_spellings(text, _list_spellings(secrets))
    return "".join(map(_redact_patterns, _split_text(text)))


def redact_known_secrets(value: dict[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object whose texts have ``***`` in place of each known secret."""
    spellings = _list_spellings(secrets)
    root = {"": value}
    containers: list[dict[Any, Any] | list[Any]] = [root]
    while containers:
        container = containers.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in list(items):
            if isinstance(item, str):
                container[key] = _replace_spellings(item, spellings)
            elif isinstance(item, dict | list):
                copied = container[key] = cast("dict[Any, Any] | list[Any]", item).copy()
                containers.append(copied)
    return root[""]


def _list_spellings(secrets: Iterable[str]) -> list[str]:
    """Return the spellings of secrets, longest first, so that one that contains another is replaced whole."""
    return sorted(set(_iter_spellings(secrets)), key=lambda each: (-len(each), each))


def _replace_spellings(text: str, spellings: Iterable[str]) -> str:
    for spelling in spellings:
        text = text.replace(spelling, REDACTED)
    return text


def _redact_patterns(text: str) -> str:
    for pattern, replacement in _SECRET_PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _split_text(text: str) -> Iterator[str]:
    """Yield a long text in pieces that end between words.

    The ``re`` module holds the GIL during a search, so a long text would block all other threads.
    """
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
