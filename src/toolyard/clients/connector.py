"""Creates sessions: chooses transport and eras to try, and falls back to older ones on failure."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.handshake import EraCache, EraStore, connect_error, negotiate_era
from toolyard.clients.session import McpSession
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, RpcError, ServerError, Unreachable
from toolyard.net import OutboundHttp
from toolyard.protocol.eras import Era, RequestBuilder, find_era
from toolyard.tracing.tracer import Attributes, Tracer, describe_address
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.transport import MAX_MESSAGE_BYTES, NOT_MCP_HINT, STREAMABLE_HTTP_HINT, Transport
from toolyard.transports.transport_table import TRANSPORTS, TransportResources
from toolyard.types.account import Principal
from toolyard.types.call import McpRequest
from toolyard.types.server import HttpSpec, ProtocolEra, Server, StdioSpec, Timeouts, TransportName

__all__ = [
    "AuthProviderFor",
    "ConnectionManagerLimits",
    "Connector",
    "TracedSession",
    "connect_timeout_hint",
    "describe_server",
    "server_fingerprint",
]


AuthProviderFor: TypeAlias = Callable[[Server, Principal], AuthProvider | None]
"""Returns the credentials of a principal for a server, or None if it needs none. A provider with a ``close``
method is closed together with the connection that requested it."""


@dataclass(frozen=True, slots=True)
class ConnectionManagerLimits:
    """Limits, idle timeout and restart delays of a ``ConnectionManager``."""

    idle_seconds: float = 300.0
    """Idle timeout for connections of principals other than the local user, where the server sets none. Web
    users leave without signing off."""
    connections: int = 1024
    """Number of connections from which unconnected ones of other principals than the local user are
    dropped."""
    chat_connections: int = 256
    """Number of chat connections from which unconnected ones are dropped."""
    recent_clients: int = 20
    """Number of clients without a session that a connection remembers as its users."""
    recent_client_seconds: float = 600.0
    """Time since its last request for which such a client counts as a user."""
    restart_delays: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    """Seconds before each consecutive restart. After the last one the server is no longer restarted."""


@dataclass(slots=True)
class Connector:
    """Resources shared by all sessions of one manager. ``close`` leaves a ``net`` passed by the caller
    open."""

    client_info: Mapping[str, Any]
    callbacks: Callbacks = field(default_factory=Callbacks)
    auth_providers: Mapping[str, AuthProvider] = field(default_factory=dict[str, AuthProvider])
    auth_provider_for: AuthProviderFor | None = None
    eras: EraStore = field(default_factory=EraCache)
    net: OutboundHttp | None = None
    process_supervisor: ProcessSupervisor = field(default_factory=ProcessSupervisor)
    message_limit: int = MAX_MESSAGE_BYTES
    traffic_limits: TrafficLimits = field(default_factory=TrafficLimits)
    connection_limits: ConnectionManagerLimits = field(default_factory=ConnectionManagerLimits)
    memory_servers: Mapping[str, Callable[[], Transport]] = field(
        default_factory=dict[str, Callable[[], Transport]]
    )
    """Factories of transports to servers in this process, by server id."""
    free_process_slot: Callable[[], Awaitable[None]] | None = None
    """Stops an idle child process if the maximum number of processes is running."""
    _net: OutboundHttp = field(init=False)

    def __post_init__(self) -> None:
        self._net = self.net or OutboundHttp()

    @property
    def tracer(self) -> Tracer:
        return self._net.tracer

    def find_auth_provider(self, server: Server, principal: Principal) -> AuthProvider | None:
        """Return this principal's credentials for a server, to be closed with the connection. Return None if
        there are none, or if the program owns the provider."""
        spec = server.transport
        if (
            self.auth_provider_for is None
            or not isinstance(spec, HttpSpec)
            or spec.auth_provider_id is not None
        ):
            return None
        return self.auth_provider_for(server, principal)

    async def connect(
        self,
        server: Server,
        on_created: Callable[[McpSession], None],
        auth: AuthProvider | None = None,
        callbacks: Callbacks | None = None,
    ) -> McpSession:
        """Create a session and complete its handshake.

        ``on_created`` receives each session before it is opened, and its receiver must close every one, also
        after a failure. ``auth`` is the result of ``find_auth_provider``; ``callbacks`` replace the shared
        ones. Raise a ServerError that means that nothing was executed.
        """
        key = server_fingerprint(server)
        attempt = _first_attempt(server)
        if not TRANSPORTS[attempt.transport].starts_process and server.id not in self.memory_servers:
            await self._net.load_library()
        recalled = None
        if server.protocol is ProtocolEra.AUTO:
            recalled = _recalled_attempt(server, self.eras.recall(key))
            attempt = recalled or attempt
        seconds = server.timeouts.connect
        timeouts = Timeouts(seconds, silence=seconds, call=seconds)
        first_error: ServerError | None = None
        while True:
            # Each attempt needs a new session: a transport cannot be reopened, and some servers exit or close
            # the stream after a message of an era that they do not support.
            session = self._make_session(server, attempt, auth, callbacks or self.callbacks)
            on_created(session)
            if self.free_process_slot is not None and TRANSPORTS[attempt.transport].starts_process:
                await self.free_process_slot()
            try:
                await session.open()
                handshake = await negotiate_era(session, attempt.eras, timeouts)
                break
            except ServerError as error:
                first_error = first_error or error
                # Forgotten before the next attempt: if that fails or is cancelled as well, the next connect
                # must not start with an era that does not work.
                self.eras.remember(key, None)
                fallback = _next_attempt(server, attempt, error, recalled=attempt is recalled)
                if fallback is None:
                    # If an older transport failed too, the first error tells more than that of a transport
                    # nobody configured.
                    was_fallback = attempt.transport != server.transport.type
                    raise connect_error(first_error if was_fallback else error) from error
                # Closed at once and not with the others at the end: over stdio it is a process, which counts
                # against the limit and may hold resources that the next one needs.
                await session.close()
                attempt = fallback
        if server.protocol is ProtocolEra.AUTO:
            is_configured = attempt.transport == server.transport.type
            self.eras.remember(key, handshake.era.name if is_configured else attempt.transport)
        return session

    def _make_session(
        self, server: Server, attempt: _Attempt, auth: AuthProvider | None, callbacks: Callbacks
    ) -> McpSession:
        spec = server.transport
        if (make := self.memory_servers.get(server.id)) is not None:
            transport = make()
        else:
            if isinstance(spec, HttpSpec) and spec.auth_provider_id is not None:
                auth = self._get_configured_provider(spec.auth_provider_id)
            resources = TransportResources(self._net, self.process_supervisor, self.message_limit)
            transport = TRANSPORTS[attempt.transport].make(server, auth, resources)
        request_builder = RequestBuilder(self.client_info, callbacks.capabilities())
        if self.tracer.is_on:
            return TracedSession(
                server.id,
                transport,
                request_builder,
                callbacks,
                self.traffic_limits,
                tracer=self.tracer,
                attributes=describe_server(server),
            )
        return McpSession(server.id, transport, request_builder, callbacks, self.traffic_limits)

    def _get_configured_provider(self, provider_id: str) -> AuthProvider:
        provider = self.auth_providers.get(provider_id)
        if provider is None:
            raise Unreachable(
                f"auth provider '{provider_id}' is missing",
                hint="only a program that uses the library can supply it (auth_providers); elsewhere set "
                "'headers' or 'oauth' in place of 'authProviderId'",
            )
        return provider

    async def close(self) -> None:
        """Close the network resources. Call it after all sessions over them are closed."""
        if self.net is None:
            await self._net.close()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to connect to a server: a transport, and the eras to try on it, newest first."""

    transport: TransportName
    eras: tuple[Era, ...]


def _first_attempt(server: Server) -> _Attempt:
    name = server.transport.type
    era, eras = find_era(server.protocol), TRANSPORTS[name].eras
    return _Attempt(name, (era,) if era in eras else eras)


def _recalled_attempt(server: Server, name: str | None) -> _Attempt | None:
    """Return the attempt for a remembered name, which is that of an era or of an older transport."""
    transport = server.transport.type
    kind = TRANSPORTS[transport]
    if (era := find_era(name)) in kind.eras:
        return _Attempt(transport, kind.eras[kind.eras.index(era) :])
    if kind.older is not None and name == kind.older:
        return _Attempt(kind.older, TRANSPORTS[kind.older].eras)
    return None


def _next_attempt(
    server: Server, attempt: _Attempt, error: ServerError, *, recalled: bool
) -> _Attempt | None:
    """Return the attempt to make after a failed one, or None to give up."""
    kind = TRANSPORTS[attempt.transport]
    first = _first_attempt(server)
    if recalled and attempt != first and isinstance(error, BadAnswer | RpcError):
        # It answered, but no longer in the remembered era: detect it again.
        return first
    if kind.starts_process and len(attempt.eras) > 1 and isinstance(error, OutcomeUnknown):
        # Some old servers exit on the first message that they do not support.
        return _Attempt(attempt.transport, attempt.eras[1:])
    is_plain_refusal = isinstance(error, HttpStatus) and error.status in (400, 404, 405)
    if is_plain_refusal and kind.older is not None:
        eras = TRANSPORTS[kind.older].eras
        return _Attempt(kind.older, eras) if find_era(server.protocol) in (None, *eras) else None
    return None


def connect_timeout_hint(server: Server, skipped_lines: int) -> str:
    """Return the hint for a server that did not answer, after so many lines that are not messages."""
    if skipped_lines:
        return NOT_MCP_HINT
    if any(kind.older == server.transport.type for kind in TRANSPORTS.values()):
        return STREAMABLE_HTTP_HINT
    return "raise 'timeouts.connect' if the server needs longer to start"


def server_fingerprint(server: Server) -> str:
    """Return a hash that identifies a server's definition: another command or URL is another server."""
    spec = server.transport
    if isinstance(spec, StdioSpec):
        words = (spec.command, *spec.args, spec.cwd or "")
    else:
        words = (spec.type, spec.url)
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()


class TracedSession(McpSession):
    """Session that records a span for each request, and sends the trace context with it.

    The span of a tool call begins earlier, in the call path, and is completed here.
    """

    def __init__(self, *args: Any, tracer: Tracer, attributes: Attributes) -> None:
        super().__init__(*args)
        self._tracer = tracer
        self._attributes = attributes

    async def request(
        self,
        request: McpRequest,
        timeouts: Timeouts,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        method, tracer = request.method, self._tracer
        if method == "subscriptions/listen":
            # Lasts as long as the session, and belongs to no caller.
            return await super().request(request, timeouts, headers)
        target = (request.params or {}).get("name") if method in ("tools/call", "prompts/get") else None
        name = method if target is None else f"{method} {target}"
        attributes: Attributes = {
            **self._attributes,
            "mcp.method.name": method,
            "mcp.protocol.version": self.request_builder.version,
            "jsonrpc.request.id": str(self._pending.next_id),
            "gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name": target,
        }
        if method == "tools/call":
            span = tracer.current_span()
            span.rename(name)
            span.set(attributes)
            scope: AbstractContextManager[object] = nullcontext()
        else:
            scope = tracer.span(name, "client", attributes)
        with scope:
            carrier = tracer.inject()
            traced = replace(request, meta={**(request.meta or {}), **carrier})
            return await super().request(traced, timeouts, {**(headers or {}), **carrier})


def describe_server(server: Server) -> Attributes:
    """Return the attributes of spans that concern a server."""
    spec = server.transport
    if isinstance(spec, StdioSpec):
        return {"toolyard.server.id": server.id, "network.transport": "pipe"}
    return {
        "toolyard.server.id": server.id,
        "network.transport": "tcp",
        "network.protocol.name": "http",
        **describe_address(spec.url),
    }
