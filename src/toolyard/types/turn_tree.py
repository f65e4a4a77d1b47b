"""Turns of a chat as a tree: each follows another one; those that follow the same one are alternatives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["Fork", "TurnTree"]


@dataclass(frozen=True, slots=True)
class Fork:
    """Place of a new turn that is an alternative to an existing one."""

    parent: int
    """Turn that the new one follows; 0: none."""
    last: int
    """Last turn of the branch from which the user forked. If the chat shows another one by now, the request
    is refused."""


@dataclass(frozen=True, slots=True)
class TurnTree:
    """The turns of a chat by their numbers, in the order in which they began."""

    parents: Mapping[int, int] = field(default_factory=lambda: MappingProxyType(dict[int, int]()))
    """The turn that each one follows; 0: it is a first one."""

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, int | None]]) -> TurnTree:
        """Build the tree from numbers and parents, in order.

        A turn without a parent is one of an earlier version, and follows the turn before it.
        """
        parents: dict[int, int] = {}
        previous = 0
        for turn, parent in rows:
            parents[turn] = previous if parent is None else parent
            previous = turn
        return cls(parents)

    def branch(self, last: int) -> list[int]:
        """Return the turns from the first one to this one."""
        turns: list[int] = []
        # A parent is always older, also in a damaged database, in which this would otherwise never end.
        while last in self.parents and (not turns or last < turns[-1]):
            turns.append(last)
            last = self.parents[last]
        return turns[::-1]

    def alternatives(self, turn: int) -> list[int]:
        """Return the turns that follow the same one, including this one."""
        parent = self.parents.get(turn)
        return [each for each, other in self.parents.items() if other == parent]

    def newest_end(self, turn: int) -> int:
        """Return the newest turn that follows this one directly or indirectly; itself if there is none."""
        end, descendants = turn, {turn}
        for each, parent in self.parents.items():
            if parent in descendants:
                descendants.add(each)
                end = each
        return end

    def replacement(self, turn: int, last: int) -> int | None:
        """Return the turn of the branch to ``last`` that is shown in place of another one, or of a turn that
        the other one follows; None if the branch ends before it."""
        shown = self.branch(last)
        for each in reversed(self.branch(turn)):
            if (found := next((t for t in self.alternatives(each) if t in shown), None)) is not None:
                return found
        return None
