"""Strategies that choose the connection for each request of a chat or a gateway client.

One strategy is chosen for each server, from its definition, and used until the definition changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection import Connection
from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import ServerError
from toolyard.protocol.codec import encode
from toolyard.types.account import Principal
from toolyard.types.call import Caller, McpRequest, RequestClient
from toolyard.types.server import Server, SessionPolicy, State, StdioSpec, Trust

__all__ = ["ConnectionChoice", "ConnectionChoices", "is_shared_process"]

_NO_CAPABILITIES_KEY = "silent"
"""Holder of the connections that declared no capabilities."""

_MAX_CHATS = 1024
"""Maximum number of chats whose capabilities are remembered."""
_ChatAnswers: TypeAlias = tuple[
    dict[str, Any], Callable[[str, str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
]
"""Capabilities of a chat, and the function that returns its answer to a server."""
_PoolKey: TypeAlias = tuple[str, str, bytes]
"""Server id, principal id, and the encoded capabilities that were declared to the server."""


def is_shared_process(server: Server) -> bool:
    """Return True if all clients and chats of a principal use one process of this server."""
    return isinstance(server.transport, StdioSpec) and server.sessions is SessionPolicy.SHARED


class ConnectionChoice(Protocol):
    """Chooses the connection for each request to a server."""

    def send(self, default: Connection, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        """Return the result of a request; ``default`` is the connection of the caller's chat or principal."""
        ...


class ConnectionChoices:
    """The strategies of one connection manager, and the one of each server."""

    def __init__(
        self,
        make_connection: Callable[[str, Principal, str, Callbacks], Connection],
        close: Callable[[str], Awaitable[None]],
        callbacks_for_chat: Callable[[Principal, str], Callbacks | None],
    ) -> None:
        """``make_connection`` returns the connection of a server, principal and holder, and creates it if
        there is none. ``close`` closes the connections of a holder."""
        self._single_calls = _SingleCallConnections(make_connection, close)
        self._shared_process = _SharedProcess(callbacks_for_chat)
        self._per_client = _PerClient(make_connection, self._single_calls)
        self._by_capabilities = _ByCapabilities(make_connection, self._per_client)
        self._by_server: dict[str, tuple[Server, ConnectionChoice]] = {}

    def for_server(self, server: Server) -> ConnectionChoice:
        """Return the strategy for a server: the same one as long as its definition is the same object."""
        known = self._by_server.get(server.id)
        if known is not None and known[0] is server:
            return known[1]
        choice = self._choose(server)
        self._by_server[server.id] = (server, choice)
        return choice

    def _choose(self, server: Server) -> ConnectionChoice:
        choice: ConnectionChoice
        if is_shared_process(server):
            choice = self._shared_process
        elif server.sessions is SessionPolicy.SHARED:
            choice = self._by_capabilities
        else:
            choice = self._per_client
        return _WithoutQuestions(choice) if server.trust is Trust.UNTRUSTED else choice

    def forget_chats(self, chat: str | None = None) -> None:
        """Find out again what a chat can answer, or what each of them can."""
        self._shared_process.forget_chats(chat)

    def forget_servers(self, server_ids: Collection[str]) -> None:
        """Drop the strategies and idle connections of changed or removed servers."""
        for server_id in server_ids:
            self._by_server.pop(server_id, None)
        self._single_calls.forget_servers(server_ids)


class _SharedProcess:
    """All chats and clients of a principal share one process."""

    def __init__(self, callbacks_for_chat: Callable[[Principal, str], Callbacks | None]) -> None:
        self._callbacks_for_chat = callbacks_for_chat
        self._chat_answers: LruCache[tuple[Principal, str], _ChatAnswers] = LruCache(_MAX_CHATS)
        """Capabilities and answers of chats, by principal and chat."""

    def send(self, default: Connection, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        if request.client is None and caller.chat is not None and default.serves_clients:
            request = replace(request, client=self._make_chat_client(caller.principal, caller.chat))
        return default.request(request)

    def _make_chat_client(self, principal: Principal, chat: str) -> RequestClient | None:
        """Return the client for a call of a chat; None if chats cannot answer servers."""
        key = (principal, chat)
        if (known := self._chat_answers.peek(key)) is None:
            if (callbacks := self._callbacks_for_chat(principal, chat)) is None:
                return None
            answer = replace(callbacks, shared=None).answer
            known = self._chat_answers[key] = (callbacks.capabilities(), answer)
        # A client for each call: it is known to have ended when nothing refers to it any more.
        return RequestClient(chat, "a chat", *known)

    def forget_chats(self, chat: str | None) -> None:
        for key in [key for key in self._chat_answers if chat in (None, key[1])]:
            del self._chat_answers[key]


@dataclass(frozen=True, slots=True)
class _PerClient:
    """Each client has its own connection.

    Over HTTP a legacy server asks on the stream of the call, and a connection of the client's own costs no
    process. A client with a key, such as a session, has one for as long as it exists. A modern client without
    a session cannot be recognised again: its calls get connections that declared its capabilities, one call
    at a time on each, so that a question always belongs to that call.
    """

    make_connection: Callable[[str, Principal, str, Callbacks], Connection]
    single_calls: _SingleCallConnections

    def send(self, default: Connection, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        client, server_id = request.client, default.server.id
        if client is None:
            return default.request(request)
        if client.key is None:
            return self.single_calls.send(server_id, caller.principal, request, client)
        callbacks = Callbacks.from_client(client)
        return self.make_connection(server_id, caller.principal, client.key, callbacks).request(request)


@dataclass(frozen=True, slots=True)
class _ByCapabilities:
    """Clients share a connection to an HTTP server where its era and their capabilities allow it."""

    make_connection: Callable[[str, Principal, str, Callbacks], Connection]
    per_client: _PerClient

    def send(self, default: Connection, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        client = request.client
        if client is None:
            return default.request(request)
        return self._send_for_client(default, caller, request, client)

    async def _send_for_client(
        self, default: Connection, caller: Caller, request: McpRequest, client: RequestClient
    ) -> dict[str, Any]:
        is_silent = not client.capabilities and client.log_level is None
        if is_silent and not default.offered_capabilities:
            return await default.request(request)
        handshake = default.handshake_result or await default.ensure_connected()
        # A modern server learns the capabilities with each request. Its log messages name no request.
        if handshake.era.asks_in_results and client.log_level is None:
            return await default.request(request)
        if is_silent:
            silent = self.make_connection(
                default.server.id, caller.principal, _NO_CAPABILITIES_KEY, Callbacks()
            )
            return await silent.request(request)
        return await self.per_client.send(default, caller, request)


@dataclass(frozen=True, slots=True)
class _WithoutQuestions:
    """Hides the capabilities of clients from an untrusted server, which cannot ask questions then."""

    choice: ConnectionChoice

    def send(self, default: Connection, caller: Caller, request: McpRequest) -> Awaitable[dict[str, Any]]:
        client = request.client
        if client is not None and client.capabilities:
            client = RequestClient(client.key, client.name, on_progress=client.on_progress)
            request = replace(request, client=client)
        return self.choice.send(default, caller, request)


@dataclass(slots=True, eq=False)
class _PooledConnection:
    """A pooled connection. It serves one call at a time."""

    holder: str
    connection: Connection
    client: RequestClient | None = None


class _SingleCallConnections:
    """Pool of connections for clients without a key, by the capabilities that they declared."""

    def __init__(
        self,
        make_connection: Callable[[str, Principal, str, Callbacks], Connection],
        close: Callable[[str], Awaitable[None]],
    ) -> None:
        self._make_connection = make_connection
        self._close = close
        self._idle: dict[_PoolKey, list[_PooledConnection]] = {}
        self._numbers = itertools.count(1)

    async def send(
        self, server_id: str, principal: Principal, request: McpRequest, client: RequestClient
    ) -> dict[str, Any]:
        """Return the result of a request over a connection that no other call uses meanwhile."""
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
            holder, self._make_connection(kind[0], principal, holder, Callbacks.from_client(declared))
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
