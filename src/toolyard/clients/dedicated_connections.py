"""Connections beside the usual ones, each to the one who needs it to themself: a chat, a gateway's client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import TypeAlias

from toolyard.clients.connection import Connection
from toolyard.types.status import State

__all__ = ["LaneKey", "Lanes"]

LaneKey: TypeAlias = tuple[str, str, str]
"""The server, the principal, and whoever has the lane."""

_TELLING = frozenset({State.READY, State.FAILED, State.NEEDS_AUTH, State.CONNECTING})
"""States that say something about the server. A lane that rests says nothing."""


class Lanes:
    """Lanes by server and principal, so that a look at one server passes over those of all others."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], dict[str, Connection]] = {}
        self._passing: dict[LaneKey, Connection] = {}
        """Those that may go when nobody uses them."""

    def find(self, key: LaneKey) -> Connection | None:
        return self._of.get(key[:2], {}).get(key[2])

    def put(self, key: LaneKey, lane: Connection, *, passing: bool = False) -> None:
        """Keep it. ``passing``: whoever has it asks for it anew each time, so that it may go meanwhile."""
        self._of.setdefault(key[:2], {})[key[2]] = lane
        if passing:
            self._passing[key] = lane

    def held_by(self, holder: str) -> list[Connection]:
        """Those of one holder."""
        return [self._of[key[:2]][holder] for key in self if key[2] == holder]

    def passing(self) -> list[tuple[LaneKey, Connection]]:
        """Those that were put here to pass."""
        return list(self._passing.items())

    def newest(self, server_id: str, principal_id: str, states: Set[State] = _TELLING) -> Connection | None:
        """The lane whose state changed last, of those in one of these states."""
        lanes = self._of.get((server_id, principal_id))
        telling = [] if lanes is None else [lane for lane in lanes.values() if lane.state in states]
        return max(telling, key=lambda lane: lane.since, default=None)

    def take(self, which: Callable[[LaneKey], bool]) -> list[Connection]:
        """Take out those with such a key: whoever asks for one from now on gets another."""
        return [self._take(key) for key in list(self) if which(key)]

    def take_spare(self, most: int) -> list[Connection]:
        """Where there are more than so many that may go, take out those that nobody uses, but for the half
        that was used last."""
        if len(self._passing) <= most:
            return []
        spare = [key for key, lane in self._passing.items() if lane.spare]
        spare.sort(key=lambda key: self._passing[key].used)
        return [self._take(key) for key in spare[: (len(spare) + 1) // 2]]

    def _take(self, key: LaneKey) -> Connection:
        self._passing.pop(key, None)
        lanes = self._of[key[:2]]
        lane = lanes.pop(key[2])
        if not lanes:
            del self._of[key[:2]]
        return lane

    def __iter__(self) -> Iterator[LaneKey]:
        for (server_id, principal_id), lanes in self._of.items():
            for holder in lanes:
                yield server_id, principal_id, holder

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))
