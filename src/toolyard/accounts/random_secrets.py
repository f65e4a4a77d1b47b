"""Random secrets for cookies, tokens and links, and the hashes under which they are stored."""

from __future__ import annotations

import hashlib
import secrets

__all__ = ["hash_secret", "is_secret", "new_secret"]

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
