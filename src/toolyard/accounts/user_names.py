"""Names of people: what can be one. Two that look the same shall not be two people."""

from __future__ import annotations

import unicodedata

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem

__all__ = ["MAX_NAME_CHARACTERS", "candidate_names", "normalize_name", "validate_name"]

MAX_NAME_CHARACTERS = 100


def normalize_name(text: str) -> str | None:
    """The text as a name, in its one normal form; None where it cannot be one."""
    name = unicodedata.normalize("NFKC", text).strip()
    if not name or len(name) > MAX_NAME_CHARACTERS or not name.isprintable() or "  " in name:
        return None
    return name


def validate_name(text: str) -> str:
    """The text as a name. Raises Invalid."""
    name = normalize_name(text)
    if name is None:
        message = f"a name has 1 to {MAX_NAME_CHARACTERS} characters, all of them visible"
        raise Invalid([Problem(message, path="name", hint="choose another name")])
    return name


def candidate_names(name: str) -> tuple[str, ...]:
    """The name itself, then what to call somebody where it is taken."""
    shorter = name[: MAX_NAME_CHARACTERS - 4]
    return (name, *(f"{shorter}-{number}" for number in range(2, 1000)))
