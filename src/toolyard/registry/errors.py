"""What can be wrong with a server or an instance that somebody enters.

ToolyardError
├── Invalid              a field that cannot be used; all problems at once, ``path`` names the field
├── Taken                the name or slug is in use (``field``)
└── NotFound             there is none, or it is another person's: nobody can tell which
"""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.errors import Problem, ToolyardError

__all__ = ["Invalid", "NotFound", "Taken"]


class Invalid(ToolyardError):
    """What was entered cannot be used. ``problems`` holds all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Taken(ToolyardError):
    """The name or slug is in use."""

    def __init__(self, cause: str, *, field: str, hint: str | None = None) -> None:
        super().__init__(cause, hint=hint)
        self.field = field


class NotFound(ToolyardError):
    """There is no such thing for this person."""
