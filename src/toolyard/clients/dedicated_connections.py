"""Connections beside the usual ones, each to the one who needs it to themself: a chat, a gateway's client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import TypeAlias

from toolyard.clients.connection import Connection
from toolyard.types.status import State

__all__ = ["DedicatedConnectionKey", "DedicatedConnections"]

DedicatedConnectionKey: TypeAlias = tuple[str, str, str]
"""The server, the principal, and whoever has the lane."""

_INFORMATIVE_STATES = frozenset({State.READY, State.FAILED, State.NEEDS_AUTH, State.CONNECTING})
"""States that say something about the server. A lane that rests says nothing."""


class DedicatedConnections:
    """Lanes by server and principal, so that a look at one server passes over those of all others."""

    def __init__(self) -> None:
        self._by_server_and_principal: dict[tuple[str, str], dict[str, Connection]] = {}
        self._transient: dict[DedicatedConnectionKey, Connection] = {}
        """Those that may go when nobody uses them."""

    def find(self, key: DedicatedConnectionKey) -> Connection | None:
        return self._by_server_and_principal.get(key[:2], {}).get(key[2])

    def put(self, key: DedicatedConnectionKey, connection: Connection, *, transient: bool = False) -> None:
        """Keep it. ``passing``: whoever has it asks for it anew each time, so that it may go meanwhile."""
        self._by_server_and_principal.setdefault(key[:2], {})[key[2]] = connection
        if transient:
            self._transient[key] = connection

    def for_holder(self, holder: str) -> list[Connection]:
        """Those of one holder."""
        return [self._by_server_and_principal[key[:2]][holder] for key in self if key[2] == holder]

    def transient_connections(self) -> list[tuple[DedicatedConnectionKey, Connection]]:
        """Those that were put here to pass."""
        return list(self._transient.items())

    def newest(
        self, server_id: str, principal_id: str, states: Set[State] = _INFORMATIVE_STATES
    ) -> Connection | None:
        """The lane whose state changed last, of those in one of these states."""
        lanes = self._by_server_and_principal.get((server_id, principal_id))
        telling = [] if lanes is None else [lane for lane in lanes.values() if lane.state in states]
        return max(telling, key=lambda lane: lane.since, default=None)

    def remove_matching(self, predicate: Callable[[DedicatedConnectionKey], bool]) -> list[Connection]:
        """Take out those with such a key: whoever asks for one from now on gets another."""
        return [self._remove_key(key) for key in list(self) if predicate(key)]

    def prune(self, max_transient: int) -> list[Connection]:
        """Where there are more than so many that may go, take out those that nobody uses, but for the half
        that was used last."""
        if len(self._transient) <= max_transient:
            return []
        spare = [key for key, lane in self._transient.items() if lane.is_disposable]
        spare.sort(key=lambda key: self._transient[key].last_used)
        return [self._remove_key(key) for key in spare[: (len(spare) + 1) // 2]]

    def _remove_key(self, key: DedicatedConnectionKey) -> Connection:
        self._transient.pop(key, None)
        lanes = self._by_server_and_principal[key[:2]]
        lane = lanes.pop(key[2])
        if not lanes:
            del self._by_server_and_principal[key[:2]]
        return lane

    def __iter__(self) -> Iterator[DedicatedConnectionKey]:
        for (server_id, principal_id), lanes in self._by_server_and_principal.items():
            for holder in lanes:
                yield server_id, principal_id, holder

    def __len__(self) -> int:
        return sum(map(len, self._by_server_and_principal.values()))
