"""API tokens: generation, recognition and validation of scopes. ``policy`` enforces the scopes."""

from __future__ import annotations

from toolyard.accounts.errors import Invalid
from toolyard.accounts.random_secrets import is_secret, new_secret
from toolyard.errors import Problem
from toolyard.types.account import ApiToken, TokenScope

__all__ = ["TOKEN_PREFIX", "check_scope", "expires_soon", "is_token", "new_token"]

TOKEN_PREFIX = "ty_"
"""Prefix of every token, which lets secret scanners recognise leaked tokens."""

_MAX_SCOPE_ENTRIES = 200
_MAX_SCOPE_ENTRY_CHARACTERS = 200


def new_token() -> str:
    """Return the text of a new random token."""
    return TOKEN_PREFIX + new_secret()


def is_token(text: str) -> bool:
    """Return whether a text has the format of a token."""
    return text.startswith(TOKEN_PREFIX) and is_secret(text.removeprefix(TOKEN_PREFIX))


def expires_soon(token: ApiToken, now: float, *, seconds: float = 14 * 86_400.0) -> bool:
    """Return whether a valid token expires within ``seconds``."""
    return token.expires_at is not None and now < token.expires_at < now + seconds


def check_scope(scope: TokenScope) -> None:
    """Raise Invalid, with all problems, if a scope is not valid."""
    problems: list[Problem] = []
    if not scope.rights:
        problems.append(Problem("a token without a right can do nothing", path="scope.rights"))
    for field, texts in (("servers", scope.servers), ("tools", scope.tools), ("agents", scope.agents)):
        if texts is None:
            continue
        if len(texts) > _MAX_SCOPE_ENTRIES:
            problems.append(Problem(f"at most {_MAX_SCOPE_ENTRIES} entries", path=f"scope.{field}"))
        elif any(
            not text.strip() or len(text) > _MAX_SCOPE_ENTRY_CHARACTERS or not text.isprintable()
            for text in texts
        ):
            message = (
                f"an entry is empty, longer than {_MAX_SCOPE_ENTRY_CHARACTERS} characters, or contains "
                "invisible characters"
            )
            problems.append(Problem(message, path=f"scope.{field}"))
    if problems:
        raise Invalid(problems)
