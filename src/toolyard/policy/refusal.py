"""The words for a tool that is denied, and for one that does not exist: the same."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from difflib import get_close_matches

from toolyard.errors import ToolRefused

__all__ = ["build_refusal"]

_MAX_COMPARED_NAMES = 500
"""Names: to compare thousands would keep everybody else waiting."""
_MAX_NAME_CHARACTERS = 128
"""Characters of a name that is not known."""


def build_refusal(name: str, visible_names: Iterable[str] = ()) -> ToolRefused:
    """The error for a name that the caller may not use, whatever the reason.

    ``shown`` are the names that this caller does see; only they are suggested, so that the words tell
    nothing about the others. The operator learns the reason from the decision.
    """
    similar = get_close_matches(name[:_MAX_NAME_CHARACTERS], _nearby_names(name, visible_names), n=1)
    hint = f"did you mean '{similar[0]}'?" if similar else "list the tools to see which there are"
    said = name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"
    return ToolRefused(f"there is no tool '{said}' here", hint=hint)


def _nearby_names(name: str, visible_names: Iterable[str]) -> list[str]:
    """The names to compare with; of very many, those that stand around it in their order."""
    others = sorted(other for other in visible_names if other != name)
    first = (
        max(0, bisect(others, name) - _MAX_COMPARED_NAMES // 2) if len(others) > _MAX_COMPARED_NAMES else 0
    )
    return others[first : first + _MAX_COMPARED_NAMES]
