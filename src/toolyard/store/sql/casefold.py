"""Names that a person would take for the same one."""

from __future__ import annotations

from unicodedata import normalize

__all__ = ["fold_case"]


def fold_case(name: str) -> str:
    """The same for two names that differ in case or in how Unicode spells a character.

    This is Unicode's compatibility caseless matching (definition D146).
    """
    if name.isascii():
        return name.lower()
    once = normalize("NFKD", normalize("NFD", name).casefold())
    return normalize("NFKD", once.casefold())
