"""Chooses the connection of a request, so that exactly the capabilities of its client are declared to a
server.

A client without capabilities shares the principal's usual connection. If that connection declared
capabilities, because of a chat, a second one that declares none is used. A session with capabilities has
dedicated connections. A request without a session carries its capabilities: a server that has none either
gets them with the request, over the usual connection. A server with sessions gets dedicated connections that
declared exactly these capabilities, one call at a time on each, so that a question always belongs to that
call.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from toolyard.clients import ConnectionManager
from toolyard.clients.call_path import ConnectionStrategy
from toolyard.clients.callbacks import Callbacks, CapabilityNotOffered, ServerRequestHandler
from toolyard.clients.connection import Connection
from toolyard.errors import BadAnswer, ServerError
from toolyard.gateway.client_request import CURRENT_REQUEST, ClientRequest, LegacySession
from toolyard.gateway.input_required.suspended_call import MultiRoundCall
from toolyard.gateway.input_required.visible_questions import check_elicitation, check_input_requests
from toolyard.protocol.codec import encode
from toolyard.types.call import Caller, DeclaredClient, McpRequest
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Server
from toolyard.types.status import State

__all__ = ["Upstream", "needs_dedicated_connection"]

_NO_CAPABILITIES_KEY = "silent"
"""Key of the connections that declared no capabilities."""
_NO_CALLBACKS = Callbacks()
_NO_CAPABILITIES = DeclaredClient(capabilities={})

_PoolKey: TypeAlias = tuple[str, str, bytes]
"""Server id, principal id, and the encoded capabilities that were declared to the server."""


def needs_dedicated_connection(request: ClientRequest) -> bool:
    """Return whether a request cannot share the usual connection."""
    if request.session is not None:
        return request.session.needs_dedicated_connections
    return bool(request.capabilities) or request.log_level is not None


@dataclass(slots=True, eq=False)
class _DedicatedConnection:
    """A connection that serves one call at a time."""

    key: str
    connection: Connection | None = None
    call: MultiRoundCall | None = None
    log_level_mark: tuple[int, str] | None = None
    """The log level that was set, with the number of the connection it was set on."""


class _ConnectionPool:
    """Dedicated connections that serve one call at a time, by server, principal and declared capabilities."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._idle_connections: dict[_PoolKey, list[_DedicatedConnection]] = {}
        self._connection_numbers = itertools.count(1)

    def acquire(
        self, kind: _PoolKey, server_id: str, principal: Principal, capabilities: Mapping[str, Any]
    ) -> tuple[_DedicatedConnection, Connection]:
        free = self._idle_connections.get(kind, [])
        # A connection may have been closed while it was free, by its idle timeout or a change of the server.
        while free:
            dedicated = free.pop()
            if dedicated.connection is not None and dedicated.connection.state is not State.CLOSED:
                return dedicated, dedicated.connection
        dedicated = _DedicatedConnection(f"dedicated-{next(self._connection_numbers)}")
        callbacks = _check_questions(
            _make_callbacks(dedicated, capabilities), self._manager.find(server_id, principal)
        )
        dedicated.connection = self._manager.dedicated_connection(
            server_id, principal, dedicated.key, callbacks
        )
        return dedicated, dedicated.connection

    def release(self, kind: _PoolKey, dedicated: _DedicatedConnection) -> None:
        dedicated.call = None
        if dedicated.connection is not None and dedicated.connection.state is not State.CLOSED:
            self._idle_connections.setdefault(kind, []).append(dedicated)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the connections of servers that were removed."""
        for kind in [kind for kind in self._idle_connections if kind[0] in server_ids]:
            del self._idle_connections[kind]


class Upstream:
    """Chooses the connections for the requests of clients."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._pool = _ConnectionPool(manager)
        self.without_capabilities: ConnectionStrategy = (
            _WithoutCapabilities(manager) if manager.has_client_capabilities else manager
        )
        """Connections for clients without capabilities."""

    def choose(self, request: ClientRequest) -> ConnectionStrategy:
        """Return the connections for a request with a session, or of a client without capabilities."""
        if request.session is not None and request.session.needs_dedicated_connections:
            return _SessionConnections(self._manager, request, request.session)
        return self.without_capabilities

    def choose_for_rounds(self, call: MultiRoundCall, params: Mapping[str, Any]) -> ConnectionStrategy:
        """Return the connections for a call without a session that may take several rounds.

        ``params`` are those of a continued request: the client's answers, and the server's state.
        """
        return _SuspendableConnections(self._manager, self._pool, call, params)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the connections of servers that were removed."""
        self._pool.forget_servers(server_ids)

    async def close_session(self, session: LegacySession) -> None:
        """Close the dedicated connections of a session."""
        await self._manager.close_dedicated_connections(session.key)


class _WithoutCapabilities:
    """Connections for clients without capabilities, where the usual ones may have declared some.

    Each request declares that the client has none. A server with sessions gets a connection that declared
    none.
    """

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager

    async def send(self, server_id: str, caller: Caller, request: McpRequest) -> dict[str, Any]:
        connection = self._manager.connection(server_id, caller.principal)
        if not connection.has_client_capabilities:
            return await connection.request(request)
        handshake = connection.handshake_result or await connection.ensure_connected()
        if handshake.era.has_sessions:
            principal = LOCAL_PRINCIPAL if connection.server.shared else caller.principal
            silent = self._manager.dedicated_connection(
                server_id, principal, _NO_CAPABILITIES_KEY, _NO_CALLBACKS
            )
            return await silent.request(request)
        result = await connection.request(request, _NO_CAPABILITIES)
        if result.get("resultType") == "input_required":
            raise BadAnswer("asked for input, which the client does not support", server=server_id)
        return result


@dataclass(frozen=True, slots=True)
class _SessionConnections:
    """Connections dedicated to a session, which answers the questions of servers itself."""

    manager: ConnectionManager
    client_request: ClientRequest
    session: LegacySession

    async def send(self, server_id: str, caller: Caller, request: McpRequest) -> dict[str, Any]:
        session = self.session
        CURRENT_REQUEST.set(self.client_request)
        callbacks = _check_questions(session.callbacks, self.manager.find(server_id, caller.principal))
        connection = self.manager.dedicated_connection(server_id, caller.principal, session.key, callbacks)
        if session.log_level is not None:
            session.log_level_marks[server_id] = await _set_log_level(
                connection, session.log_level, session.log_level_marks.get(server_id)
            )
        return await connection.request(request, DeclaredClient(log_level=session.log_level or "info"))


@dataclass(frozen=True, slots=True)
class _SuspendableConnections:
    """Connections for one call without a session, of a client with capabilities or a log level.

    The result is ``input_required`` if the server asks in its result. A question in a request of the server
    suspends the call.
    """

    manager: ConnectionManager
    pool: _ConnectionPool
    call: MultiRoundCall
    params: Mapping[str, Any]

    async def send(self, server_id: str, caller: Caller, request: McpRequest) -> dict[str, Any]:
        client, principal = self.call.request, caller.principal
        declared = DeclaredClient(client.capabilities, client.log_level)
        # A later round may ask for progress even if this one does not.
        if request.on_progress is not None or request.method == "tools/call":
            request = replace(request, on_progress=self.call.send_progress)
        handshake = await self.manager.ensure_connected(server_id, principal=principal)
        if handshake.era.asks_in_results:
            request = replace(request, params={**(request.params or {}), **self.params})
            if client.log_level is None:
                shared = self.manager.connection(server_id, principal)
                return check_input_requests(shared.server, await shared.request(request, declared))
        kind = (server_id, principal.id, encode(dict(client.capabilities)))
        dedicated, connection = self.pool.acquire(kind, server_id, principal, client.capabilities)
        dedicated.call = self.call
        try:
            if client.log_level is not None:
                dedicated.log_level_mark = await _set_log_level(
                    connection, client.log_level, dedicated.log_level_mark
                )
            result = check_input_requests(connection.server, await connection.request(request, declared))
        except ServerError:
            self.pool.release(kind, dedicated)
            raise
        except BaseException:
            # A cancelled call may still send messages. They must not be taken for messages of the next call.
            dedicated.call = None
            await self.manager.close_dedicated_connections(dedicated.key)
            raise
        self.pool.release(kind, dedicated)
        return result


async def _set_log_level(
    connection: Connection, level: str, previous: tuple[int, str] | None
) -> tuple[int, str]:
    """Set the log level on a server with sessions, once per connection."""
    facts = await connection.ensure_connected()
    now = (connection.status().connects, level)
    if now != previous and facts.era.has_sessions and "logging" in facts.capabilities:
        # A server that cannot set a level logs as it likes; unwanted messages are filtered here.
        with contextlib.suppress(ServerError):
            await connection.request(McpRequest("logging/setLevel", {"level": level}))
    return now


def _check_questions(callbacks: Callbacks, server: Server | None) -> Callbacks:
    """Return the callbacks with the elicitations of a server checked before the client gets them."""
    elicitation = callbacks.elicitation
    if elicitation is None:
        return callbacks

    async def answer(server_id: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await elicitation(server_id, check_elicitation(server, params))

    return replace(callbacks, elicitation=answer)


def _make_callbacks(dedicated: _DedicatedConnection, capabilities: Mapping[str, Any]) -> Callbacks:
    """Return callbacks that declare the client's capabilities and are answered by the current call."""

    def answerer_for(method: str) -> ServerRequestHandler | None:
        if method.partition("/")[0] not in capabilities:
            return None

        async def answer(_: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            if dedicated.call is None:
                raise CapabilityNotOffered(method)
            return await dedicated.call.ask_client(method, params)

        return answer

    def forward_log(_: str, params: Mapping[str, Any]) -> None:
        if dedicated.call is not None:
            dedicated.call.request.send_log(params)

    return Callbacks(
        elicitation=answerer_for("elicitation/create"),
        sampling=answerer_for("sampling/createMessage"),
        roots=answerer_for("roots/list"),
        log=forward_log,
        offers=dict(capabilities),
    )
