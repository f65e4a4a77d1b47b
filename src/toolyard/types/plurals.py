"""Numbers with a noun in the singular or plural."""

from __future__ import annotations

__all__ = ["format_count"]


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: ``1 tool``, ``1,204 tools``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
