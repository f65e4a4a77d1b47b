"""Random texts that prove something, and the hashes under which they are stored."""

from __future__ import annotations

import hashlib
import secrets

__all__ = ["hash_secret", "is_secret", "new_secret"]

_SECRET_CHARACTERS = 43
"""Characters of 32 bytes in base64url."""


def new_secret() -> str:
    """32 random bytes, fit for a cookie, a path and a header."""
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Whether a text has the form of one. What has not is never looked up."""
    return (
        len(text) == _SECRET_CHARACTERS
        and text.isascii()
        and text.replace("-", "").replace("_", "").isalnum()
    )


def hash_secret(text: str) -> str:
    """The hash of a secret. A fast one will do: nobody guesses 32 random bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
