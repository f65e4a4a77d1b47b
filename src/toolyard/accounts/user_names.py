"""Names of people: what can be one. Two that look the same shall not be two people."""

from __future__ import annotations

import unicodedata

from toolyard.accounts.errors import Invalid
from toolyard.errors import Problem

__all__ = ["LONGEST_NAME", "as_name", "checked_name", "free_names"]

LONGEST_NAME = 100


def as_name(text: str) -> str | None:
    """The text as a name, in its one normal form; None where it cannot be one."""
    name = unicodedata.normalize("NFKC", text).strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or "  " in name:
        return None
    return name


def checked_name(text: str) -> str:
    """The text as a name. Raises Invalid."""
    name = as_name(text)
    if name is None:
        message = f"a name has 1 to {LONGEST_NAME} characters, all of them visible"
        raise Invalid([Problem(message, path="name", hint="choose another name")])
    return name


def free_names(name: str) -> tuple[str, ...]:
    """The name itself, then what to call somebody where it is taken."""
    shorter = name[: LONGEST_NAME - 4]
    return (name, *(f"{shorter}-{number}" for number in range(2, 1000)))
