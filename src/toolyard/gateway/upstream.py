"""Chooses the connection of a request, so that a server is told exactly the capabilities of its client.

A client without capabilities shares the principal's usual connection. If that connection declared
capabilities, because of a chat, a second one that declares none is used. A legacy session with capabilities
has dedicated connections. A modern request carries its capabilities: a modern server gets them with the
request, over the usual connection. A legacy server gets dedicated connections that declared exactly these
capabilities, one call at a time on each, so that a question always belongs to that call.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients import ConnectionManager
from toolyard.clients.callbacks import Callbacks, CapabilityNotOffered, ServerRequestHandler
from toolyard.clients.connection import Connection
from toolyard.errors import BadAnswer, ServerError
from toolyard.gateway.client_request import CURRENT_REQUEST, ClientRequest
from toolyard.gateway.input_required.suspended_call import MultiRoundCall
from toolyard.gateway.legacy_session import LegacySession
from toolyard.protocol.codec import encode
from toolyard.types.call import DeclaredClient, McpRequest
from toolyard.types.principal import LOCAL_PRINCIPAL, Principal
from toolyard.types.server import Timeouts
from toolyard.types.status import State

__all__ = ["Upstream", "needs_dedicated_connection"]

_INPUT_REQUIRED_PARAMS = ("inputResponses", "requestState")
"""Parameters of a continued modern request, which legacy servers do not know."""

_NO_CAPABILITIES_KEY = "silent"
"""Key of the connections that declared no capabilities."""
_NO_CALLBACKS = Callbacks()
_NO_CAPABILITIES: Mapping[str, Any] = {}

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


class Upstream:
    """Sends requests to servers."""

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._idle_connections: dict[_PoolKey, list[_DedicatedConnection]] = {}
        self._connection_numbers = itertools.count(1)
        self._session_log_levels: dict[tuple[str, str], tuple[int, str]] = {}

    async def send_request(
        self,
        server_id: str,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        request: ClientRequest,
        *,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
    ) -> dict[str, Any]:
        """Send a request of a legacy client, or of a client without capabilities, and return its result.
        Raises ServerError."""
        session, level, offered = request.session, request.log_level, None
        if session is None or not session.needs_dedicated_connections:
            connection = self._manager.connection(server_id, principal)
            if connection.has_client_capabilities:
                facts = connection.handshake_result or await connection.ensure_connected()
                connection, offered = self._connection_without_capabilities(
                    connection, principal, modern=facts.modern
                )
        else:
            CURRENT_REQUEST.set(request)
            connection = self._manager.dedicated_connection(
                server_id, principal, session.key, session.callbacks
            )
            level = session.log_level or "info"
            if session.log_level is not None:
                key = (session.key, server_id)
                self._session_log_levels[key] = await _set_log_level(
                    connection, level, self._session_log_levels.get(key)
                )
        result = await connection.request(
            McpRequest(
                method,
                params,
                repeatable,
                timeouts,
                request.meta,
                request.send_progress if request.progress_token is not None else None,
            ),
            DeclaredClient(offered, level),
        )
        if offered is not None and result.get("resultType") == "input_required":
            raise BadAnswer("asked for input, which the client does not support", server=server_id)
        return result

    def _connection_without_capabilities(
        self, usual: Connection, principal: Principal, *, modern: bool
    ) -> tuple[Connection, Mapping[str, Any] | None]:
        """Return a connection that declared no capabilities, and the capabilities to send with a modern
        request.

        Used where the usual connection declared capabilities to its server.
        """
        if modern:
            return usual, _NO_CAPABILITIES
        server = usual.server
        whose = LOCAL_PRINCIPAL if server.shared else principal
        return self._manager.dedicated_connection(server.id, whose, _NO_CAPABILITIES_KEY, _NO_CALLBACKS), None

    async def send_suspendable_request(
        self,
        server_id: str,
        principal: Principal,
        method: str,
        params: Mapping[str, Any],
        call: MultiRoundCall,
        *,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
    ) -> dict[str, Any]:
        """Send a request of a modern client with capabilities, or with a log level, and return its result.

        The result is ``input_required`` if a modern server asks a question. Raises ServerError.
        """
        facts = await self._manager.ensure_connected(server_id, principal=principal)
        if facts.modern and call.request.log_level is None:
            connection = self._manager.connection(server_id, principal)
            return await _send_for_call(connection, method, params, call, repeatable, timeouts)
        kind = (server_id, principal.id, encode(dict(call.request.capabilities)))
        lane, connection = self._acquire_connection(kind, server_id, principal, call.request.capabilities)
        lane.call = call
        try:
            if (level := call.request.log_level) is not None:
                lane.log_level_mark = await _set_log_level(connection, level, lane.log_level_mark)
            if not facts.modern:
                params = {key: params[key] for key in params if key not in _INPUT_REQUIRED_PARAMS}
            result = await _send_for_call(connection, method, params, call, repeatable, timeouts)
        except ServerError:
            self._release_connection(kind, lane)
            raise
        except BaseException:
            # A cancelled call may still send messages. They must not be taken for messages of the next call.
            lane.call = None
            await self._manager.close_dedicated_connections(lane.key)
            raise
        self._release_connection(kind, lane)
        return result

    def _acquire_connection(
        self, kind: _PoolKey, server_id: str, principal: Principal, capabilities: Mapping[str, Any]
    ) -> tuple[_DedicatedConnection, Connection]:
        free = self._idle_connections.get(kind, [])
        # A connection may have been closed while it was free, by its idle timeout or a change of the server.
        while free:
            lane = free.pop()
            if lane.connection is not None and lane.connection.state is not State.CLOSED:
                return lane, lane.connection
        lane = _DedicatedConnection(f"lane-{next(self._connection_numbers)}")
        callbacks = _make_callbacks(lane, capabilities)
        lane.connection = self._manager.dedicated_connection(server_id, principal, lane.key, callbacks)
        return lane, lane.connection

    def _release_connection(self, kind: _PoolKey, lane: _DedicatedConnection) -> None:
        lane.call = None
        if lane.connection is not None and lane.connection.state is not State.CLOSED:
            self._idle_connections.setdefault(kind, []).append(lane)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the connections of servers that were removed."""
        for kind in [kind for kind in self._idle_connections if kind[0] in server_ids]:
            del self._idle_connections[kind]

    async def close_session(self, session: LegacySession) -> None:
        """Close the dedicated connections of a session."""
        for key in [key for key in self._session_log_levels if key[0] == session.key]:
            del self._session_log_levels[key]
        await self._manager.close_dedicated_connections(session.key)


async def _send_for_call(
    connection: Connection,
    method: str,
    params: Mapping[str, Any],
    parked: MultiRoundCall,
    repeatable: bool,
    timeouts: Timeouts | None,
) -> dict[str, Any]:
    request = parked.request
    # A later round may ask for progress even if this one does not.
    wants_progress = request.progress_token is not None or method == "tools/call"
    return await connection.request(
        McpRequest(
            method,
            params,
            repeatable,
            timeouts,
            request.meta,
            parked.send_progress if wants_progress else None,
        ),
        DeclaredClient(request.capabilities, request.log_level),
    )


async def _set_log_level(connection: Connection, level: str, told: tuple[int, str] | None) -> tuple[int, str]:
    """Set the log level on a legacy server, once per connection."""
    facts = await connection.ensure_connected()
    now = (connection.status().connects, level)
    if now != told and not facts.modern and "logging" in facts.capabilities:
        # A server that cannot set a level logs as it likes; unwanted messages are filtered here.
        with contextlib.suppress(ServerError):
            await connection.request(McpRequest("logging/setLevel", {"level": level}))
    return now


def _make_callbacks(lane: _DedicatedConnection, capabilities: Mapping[str, Any]) -> Callbacks:
    """Return callbacks that declare the client's capabilities and are answered by the current call."""

    def answerer_for(method: str) -> ServerRequestHandler | None:
        if method.partition("/")[0] not in capabilities:
            return None

        async def answer(_: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            if lane.call is None:
                raise CapabilityNotOffered(method)
            return await lane.call.ask_client(method, params)

        return answer

    def forward_log(_: str, params: Mapping[str, Any]) -> None:
        if lane.call is not None:
            lane.call.request.send_log(params)

    return Callbacks(
        elicitation=answerer_for("elicitation/create"),
        sampling=answerer_for("sampling/createMessage"),
        roots=answerer_for("roots/list"),
        log=forward_log,
        offers=dict(capabilities),
    )
