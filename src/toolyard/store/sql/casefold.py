"""Case folding, so that names a person would confuse compare as equal."""

from __future__ import annotations

from unicodedata import normalize

__all__ = ["fold_case"]


def fold_case(name: str) -> str:
    """Return a key that is equal for names differing only in case or in their Unicode encoding.

    Implements Unicode's compatibility caseless matching (definition D146).
    """
    if name.isascii():
        return name.lower()
    # D146 folds twice: the compatibility decomposition can produce characters that fold again.
    once = normalize("NFKD", normalize("NFD", name).casefold())
    return normalize("NFKD", once.casefold())
