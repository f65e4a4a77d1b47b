"""Digests as row keys, where the real key is a secret or may be too long for an index."""

from __future__ import annotations

import hashlib

__all__ = ["compute_digest"]


def compute_digest(*parts: str) -> str:
    """Return the SHA-256 of texts, in hexadecimal.

    Each text is prefixed with its length, so that ("ab", "c") and ("a", "bc") differ.
    """
    hashed = hashlib.sha256()
    for part in parts:
        # A key with a lone surrogate matches no stored row; looking it up must not raise.
        encoded = part.encode(errors="surrogatepass")
        hashed.update(b"%d:" % len(encoded))
        hashed.update(encoded)
    return hashed.hexdigest()
