"""Connections of single clients, to servers that clients do not share: HTTP and ``per-client`` servers.

Over HTTP a legacy server asks on the stream of the call, and a connection of the client's own costs no
process. A client without capabilities shares one that declares none. A client with a key, such as a session,
has its own. A modern client without a session cannot be recognised again: its calls get connections that
declared its capabilities, one call at a time on each, so that a question always belongs to that call.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.errors import ServerError
from toolyard.protocol.codec import encode
from toolyard.types.account import Principal
from toolyard.types.call import McpRequest, RequestClient
from toolyard.types.server import SessionPolicy, State

__all__ = ["ClientConnections"]

_NO_CAPABILITIES_KEY = "silent"
"""Holder of the connections that declared no capabilities."""

_PoolKey: TypeAlias = tuple[str, str, bytes]
"""Server id, principal id, and the encoded capabilities that were declared to the server."""


@dataclass(slots=True, eq=False)
class _SingleCallConnection:
    """A connection that serves one call at a time."""

    holder: str
    connection: Connection
    client: RequestClient | None = None


class ClientConnections:
    """Chooses and creates the connections of single clients."""

    def __init__(
        self,
        make: Callable[[str, Principal, str, Callbacks], Connection],
        close: Callable[[str], Awaitable[None]],
    ) -> None:
        """``make`` returns the connection of a server, principal and holder, and creates it if there is none.
        ``close`` closes the connections of a holder."""
        self._make = make
        self._close = close
        self._idle: dict[_PoolKey, list[_SingleCallConnection]] = {}
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

    def _acquire(self, kind: _PoolKey, principal: Principal, client: RequestClient) -> _SingleCallConnection:
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
        held = _SingleCallConnection(
            holder, self._make(kind[0], principal, holder, Callbacks.from_client(declared))
        )
        return held

    def _release(self, kind: _PoolKey, held: _SingleCallConnection) -> None:
        held.client = None
        if held.connection.state is not State.CLOSED:
            self._idle.setdefault(kind, []).append(held)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the connections of changed or removed servers."""
        for kind in [kind for kind in self._idle if kind[0] in server_ids]:
            del self._idle[kind]
