"""Names for rows whose real key must not be stored, or is too long for an index."""

from __future__ import annotations

import hashlib

__all__ = ["compute_digest"]


def compute_digest(*parts: str) -> str:
    """SHA-256 over texts, told apart by their lengths."""
    hashed = hashlib.sha256()
    for part in parts:
        # A lone surrogate is the name of nothing that is stored, and no reason to fail.
        encoded = part.encode(errors="surrogatepass")
        hashed.update(b"%d:" % len(encoded))
        hashed.update(encoded)
    return hashed.hexdigest()
