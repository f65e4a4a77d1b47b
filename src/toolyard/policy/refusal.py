"""Error for a tool that is denied or does not exist. Both have the same message."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from difflib import get_close_matches

from toolyard.errors import ToolRefused

__all__ = ["build_refusal"]

_MAX_COMPARED_NAMES = 500
"""Maximum number of names compared for a suggestion; comparing thousands would block the event loop."""
_MAX_NAME_CHARACTERS = 128
"""Maximum number of characters of an unknown name that are compared and shown."""


def build_refusal(name: str, visible_names: Iterable[str] = ()) -> ToolRefused:
    """Build the error for a name that the caller may not use, for whatever reason.

    Only ``visible_names``, the names that this caller sees, are suggested, so that the message reveals
    nothing about other tools. Operators find the reason in the decision (``toolyard why``).
    """
    similar = get_close_matches(name[:_MAX_NAME_CHARACTERS], _nearby_names(name, visible_names), n=1)
    hint = f"did you mean '{similar[0]}'?" if similar else "list the tools to see the available names"
    shortened = name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"
    return ToolRefused(f"no tool named '{shortened}' is available", hint=hint)


def _nearby_names(name: str, visible_names: Iterable[str]) -> list[str]:
    """Return the names to compare with; if there are too many, the alphabetical neighbours of ``name``."""
    # A misspelled name usually sorts near the intended one, because the beginning is right.
    others = sorted(other for other in visible_names if other != name)
    first = (
        max(0, bisect(others, name) - _MAX_COMPARED_NAMES // 2) if len(others) > _MAX_COMPARED_NAMES else 0
    )
    return others[first : first + _MAX_COMPARED_NAMES]
