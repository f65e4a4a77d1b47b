"""Connections dedicated to one holder: a chat or a client of the gateway."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.errors import ServerError
from toolyard.protocol.codec import encode
from toolyard.types.account import Principal
from toolyard.types.call import McpRequest, RequestClient
from toolyard.types.server import SessionPolicy, State

__all__ = ["ClientConnections", "DedicatedConnectionKey", "DedicatedConnections"]


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


_NO_CAPABILITIES_KEY = "silent"
"""Holder of the connections that declared no capabilities."""

_PoolKey: TypeAlias = tuple[str, str, bytes]
"""Server id, principal id, and the encoded capabilities that were declared to the server."""


@dataclass(slots=True, eq=False)
class _PooledConnection:
    """A pooled connection. It serves one call at a time."""

    holder: str
    connection: Connection
    client: RequestClient | None = None


class ClientConnections:
    """Chooses and creates the connections of single clients, to servers that clients do not share: HTTP and
    ``per-client`` servers.

    Over HTTP a legacy server asks on the stream of the call, and a connection of the client's own costs no
    process. A client without capabilities shares one that declares none. A client with a key, such as a
    session, has its own. A modern client without a session cannot be recognised again: its calls get
    connections that declared its capabilities, one call at a time on each, so that a question always belongs
    to that call.
    """

    def __init__(
        self,
        make: Callable[[str, Principal, str, Callbacks], Connection],
        close: Callable[[str], Awaitable[None]],
    ) -> None:
        """``make`` returns the connection of a server, principal and holder, and creates it if there is none.
        ``close`` closes the connections of a holder."""
        self._make = make
        self._close = close
        self._idle: dict[_PoolKey, list[_PooledConnection]] = {}
        self._numbers = itertools.count(1)

    async def send(
        self, usual: Connection, principal: Principal, request: McpRequest, client: RequestClient
    ) -> dict[str, Any]:
        """Return the result of a request; ``usual`` is the principal's connection to the server."""
        server = usual.server
        is_silent = not client.capabilities and client.log_level is None
        if server.sessions is SessionPolicy.SHARED:
            if is_silent and not usual.offered_capabilities:
                return await usual.request(request)
            handshake = usual.handshake_result or await usual.ensure_connected()
            # A modern server learns the capabilities with each request. Its log messages name no request.
            if handshake.era.asks_in_results and client.log_level is None:
                return await usual.request(request)
            if is_silent:
                silent = self._make(server.id, principal, _NO_CAPABILITIES_KEY, Callbacks())
                return await silent.request(request)
        if client.key is not None:
            callbacks = Callbacks.from_client(client)
            return await self._make(server.id, principal, client.key, callbacks).request(request)
        return await self._send_alone(server.id, principal, request, client)

    async def _send_alone(
        self, server_id: str, principal: Principal, request: McpRequest, client: RequestClient
    ) -> dict[str, Any]:
        kind = (server_id, principal.id, encode(dict(client.capabilities)))
        held = self._acquire(kind, principal, client)
        held.client = client
        try:
            result = await held.connection.request(request)
        except ServerError:
            self._release(kind, held)
            raise
        except BaseException:
            # A cancelled call may still send messages. They must not be taken for messages of the next call.
            held.client = None
            await self._close(held.holder)
            raise
        self._release(kind, held)
        return result

    def _acquire(self, kind: _PoolKey, principal: Principal, client: RequestClient) -> _PooledConnection:
        idle = self._idle.get(kind, [])
        # A connection may have been closed while it was free, by its idle timeout or a change of the server.
        while idle:
            held = idle.pop()
            if held.connection.state is not State.CLOSED:
                return held

        def send_log(params: Mapping[str, Any]) -> None:
            if held.client is not None and held.client.send_log is not None:
                held.client.send_log(params)

        holder = f"dedicated-{next(self._numbers)}"
        # Questions go to the client of the call; this one only declares its capabilities.
        declared = RequestClient(None, client.name, dict(client.capabilities), send_log=send_log)
        held = _PooledConnection(
            holder, self._make(kind[0], principal, holder, Callbacks.from_client(declared))
        )
        return held

    def _release(self, kind: _PoolKey, held: _PooledConnection) -> None:
        held.client = None
        if held.connection.state is not State.CLOSED:
            self._idle.setdefault(kind, []).append(held)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the connections of changed or removed servers."""
        for kind in [kind for kind in self._idle if kind[0] in server_ids]:
            del self._idle[kind]
