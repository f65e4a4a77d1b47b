"""Random secrets for cookies, links and API tokens, the hashes under which they are stored, and the scopes of
tokens. ``policy`` enforces the scopes.
"""

from __future__ import annotations

import hashlib
import secrets

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem
from toolyard.policy.glob import MAX_STARS
from toolyard.types.account import ApiToken, TokenScope

__all__ = [
    "TOKEN_PREFIX",
    "check_scope",
    "expires_soon",
    "hash_secret",
    "is_secret",
    "is_token",
    "new_secret",
    "new_token",
]


_SECRET_CHARACTERS = 43
"""Length of 32 bytes in base64url."""


def new_secret() -> str:
    """Return 32 random bytes in base64url, for use in a cookie, a path or a header."""
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Return whether a text has the format of a secret. Other texts need not be looked up."""
    return (
        len(text) == _SECRET_CHARACTERS
        and text.isascii()
        and text.replace("-", "").replace("_", "").isalnum()
    )


def hash_secret(text: str) -> str:
    """Return the SHA-256 of a secret. A slow hash is not needed: 32 random bytes cannot be guessed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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


def expires_soon(token: ApiToken, now: float) -> bool:
    """Return whether a valid token expires within two weeks."""
    return token.expires_at is not None and now < token.expires_at < now + 14 * 86_400.0


def check_scope(scope: TokenScope) -> None:
    """Raise Invalid, with all problems, if a scope is not valid."""
    problems: list[Problem] = []
    if not scope.rights:
        problems.append(Problem("a token needs at least one right", path="scope.rights"))
    for field, texts in (("servers", scope.servers), ("tools", scope.tools), ("agents", scope.agents)):
        if texts is None:
            continue
        if len(texts) > _MAX_SCOPE_ENTRIES:
            problems.append(Problem(f"may have at most {_MAX_SCOPE_ENTRIES} entries", path=f"scope.{field}"))
        elif any(
            not text.strip() or len(text) > _MAX_SCOPE_ENTRY_CHARACTERS or not text.isprintable()
            for text in texts
        ):
            message = (
                f"an entry is empty, longer than {_MAX_SCOPE_ENTRY_CHARACTERS} characters, or contains "
                "invisible characters"
            )
            problems.append(Problem(message, path=f"scope.{field}"))
        elif any(text.count("*") > MAX_STARS for text in texts):
            problems.append(Problem(f"an entry has more than {MAX_STARS} stars", path=f"scope.{field}"))
    if problems:
        raise Invalid(problems)
