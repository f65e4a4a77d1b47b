"""Connections dedicated to one holder: a chat or a client of the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import TypeAlias

from toolyard.clients.connection import Connection
from toolyard.types.server import State

__all__ = ["DedicatedConnectionKey", "DedicatedConnections"]


DedicatedConnectionKey: TypeAlias = tuple[str, str, str]
"""Server id, principal id, and holder."""

_INFORMATIVE_STATES = frozenset({State.READY, State.FAILED, State.NEEDS_AUTH, State.CONNECTING})
"""States that say something about the server. An idle connection says nothing."""


class DedicatedConnections:
    """Connections grouped by server and principal, so that a lookup for one server does not scan all of
    them."""

    def __init__(self) -> None:
        self._by_server_and_principal: dict[tuple[str, str], dict[str, Connection]] = {}
        self._transient: dict[DedicatedConnectionKey, Connection] = {}
        """Connections that may be dropped while unused."""

    def find(self, key: DedicatedConnectionKey) -> Connection | None:
        return self._by_server_and_principal.get(key[:2], {}).get(key[2])

    def put(self, key: DedicatedConnectionKey, connection: Connection, *, transient: bool = False) -> None:
        """Store a connection. With ``transient`` its holder looks it up before each use, so that it may be
        dropped in between."""
        self._by_server_and_principal.setdefault(key[:2], {})[key[2]] = connection
        if transient:
            self._transient[key] = connection

    def for_holder(self, holder: str) -> list[Connection]:
        """Return the connections of one holder."""
        return [self._by_server_and_principal[key[:2]][holder] for key in self if key[2] == holder]

    def for_server(self, server_id: str, principal_id: str) -> list[Connection]:
        """Return the connections of one server and principal."""
        return list(self._by_server_and_principal.get((server_id, principal_id), {}).values())

    def transient_connections(self) -> list[tuple[DedicatedConnectionKey, Connection]]:
        """Return the connections stored as transient."""
        return list(self._transient.items())

    def newest(
        self, server_id: str, principal_id: str, states: Set[State] = _INFORMATIVE_STATES
    ) -> Connection | None:
        """Return the connection with the latest state change among those in one of ``states``."""
        connections = self._by_server_and_principal.get((server_id, principal_id), {})
        candidates = [connection for connection in connections.values() if connection.state in states]
        return max(candidates, key=lambda connection: connection.state_since, default=None)

    def remove_matching(self, predicate: Callable[[DedicatedConnectionKey], bool]) -> list[Connection]:
        """Remove and return the connections with a matching key. Later lookups do not find them."""
        return [self._remove_key(key) for key in list(self) if predicate(key)]

    def prune(self, max_transient: int) -> list[Connection]:
        """If there are more than ``max_transient`` transient connections, remove and return the least
        recently used half of the disposable ones."""
        if len(self._transient) <= max_transient:
            return []
        disposable = [key for key, connection in self._transient.items() if connection.is_disposable]
        disposable.sort(key=lambda key: self._transient[key].last_used)
        return [self._remove_key(key) for key in disposable[: (len(disposable) + 1) // 2]]

    def _remove_key(self, key: DedicatedConnectionKey) -> Connection:
        self._transient.pop(key, None)
        by_holder = self._by_server_and_principal[key[:2]]
        connection = by_holder.pop(key[2])
        if not by_holder:
            del self._by_server_and_principal[key[:2]]
        return connection

    def __iter__(self) -> Iterator[DedicatedConnectionKey]:
        for (server_id, principal_id), by_holder in self._by_server_and_principal.items():
            for holder in by_holder:
                yield server_id, principal_id, holder

    def __len__(self) -> int:
        return sum(map(len, self._by_server_and_principal.values()))
