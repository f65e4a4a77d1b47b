"""The words for a tool that is denied, and for one that does not exist: the same."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from toolyard.errors import ToolRefused

__all__ = ["refused"]


def refused(name: str, shown: Iterable[str] = ()) -> ToolRefused:
    """The error for a name that the caller may not use, whatever the reason.

    ``shown`` are the names that this caller does see; only they are suggested, so that the words tell
    nothing about the others. The operator learns the reason from the decision.
    """
    similar = get_close_matches(name, [other for other in shown if other != name], n=1)
    hint = f"did you mean '{similar[0]}'?" if similar else "list the tools to see which there are"
    return ToolRefused(f"there is no tool '{name}' here", hint=hint)
