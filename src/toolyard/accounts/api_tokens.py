"""API tokens: their text, and which limits make sense. What a limit means is decided by policy."""

from __future__ import annotations

from toolyard.accounts.errors import Invalid
from toolyard.accounts.random_secrets import is_secret, new_secret
from toolyard.errors import Problem
from toolyard.types.account import ApiToken, TokenScope

__all__ = ["TOKEN_PREFIX", "check_scope", "expires_soon", "is_token", "new_token"]

TOKEN_PREFIX = "ty_"
"""What every token begins with, so that scanners for leaked secrets find it."""

_MAX_SCOPE_ENTRIES = 200
_MAX_SCOPE_ENTRY_CHARACTERS = 200


def new_token() -> str:
    """The text of a new token."""
    return TOKEN_PREFIX + new_secret()


def is_token(text: str) -> bool:
    """Whether a text has the form of one."""
    return text.startswith(TOKEN_PREFIX) and is_secret(text.removeprefix(TOKEN_PREFIX))


def expires_soon(token: ApiToken, now: float, *, seconds: float = 14 * 86_400.0) -> bool:
    """Tell whether a token that still works stops working within so many seconds."""
    return token.expires_at is not None and now < token.expires_at < now + seconds


def check_scope(scope: TokenScope) -> None:
    """Raises Invalid where a scope makes no sense; with all that is wrong."""
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
                f"an entry is empty, longer than {_MAX_SCOPE_ENTRY_CHARACTERS} characters, or holds "
                "what cannot be seen"
            )
            problems.append(Problem(message, path=f"scope.{field}"))
    if problems:
        raise Invalid(problems)
