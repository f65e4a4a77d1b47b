"""Errors of the registry.

ToolyardError
├── Invalid              invalid fields; ``problems`` lists all of them, ``path`` names the field
├── Taken                the name or slug is in use (``field``)
├── Outdated             it was changed since it was read
└── NotFound             it does not exist, or belongs to another user; the error does not tell which

The store raises the last three, so ``toolyard.errors`` defines them.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.errors import NotFound, Outdated, Problem, Taken, ToolyardError

__all__ = ["Invalid", "NotFound", "Outdated", "Taken"]


class Invalid(ToolyardError):
    """The input is invalid. ``problems`` lists every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
