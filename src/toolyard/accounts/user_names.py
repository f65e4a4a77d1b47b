"""Validation of user names, normalized (NFKC) so that names that look the same are equal."""

from __future__ import annotations

import unicodedata

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem

__all__ = ["MAX_NAME_CHARACTERS", "candidate_names", "normalize_name", "validate_name"]

MAX_NAME_CHARACTERS = 100


def normalize_name(text: str) -> str | None:
    """Return the normalized name, or None if the text is not a valid name."""
    name = unicodedata.normalize("NFKC", text).strip()
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or "  " in name:
        return None
    return name


def validate_name(text: str) -> str:
    """Return the normalized name. Raises Invalid."""
    name = normalize_name(text)
    if name is None:
        message = f"a name must have 1 to {MAX_NAME_CHARACTERS} visible characters"
        raise Invalid([Problem(message, path="name", hint="choose another name")])
    return name


def candidate_names(name: str) -> tuple[str, ...]:
    """Return the name, followed by alternatives with a number appended, for use if it is taken."""
    shorter = name[: MAX_NAME_CHARACTERS - 4]
    return (name, *(f"{shorter}-{number}" for number in range(2, 1000)))
