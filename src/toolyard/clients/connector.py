"""Creates sessions: chooses the transport and the era, and falls back to older ones on failure."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.handshake import (
    Era,
    EraCache,
    EraStore,
    complete_handshake,
    connect_error,
    discover,
    initialize,
    negotiate_era,
)
from toolyard.clients.session import McpSession
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, RpcError, ServerError, Unreachable
from toolyard.net import OutboundHttp
from toolyard.protocol.client import HandshakeResult, RequestBuilder
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.transports.transport import MAX_MESSAGE_BYTES, Transport
from toolyard.types.principal import Principal
from toolyard.types.server import HttpSpec, ProtocolEra, Server, StdioSpec, Timeouts

__all__ = ["AuthProviderFor", "Connector", "server_fingerprint"]

AuthProviderFor: TypeAlias = Callable[[Server, Principal], AuthProvider | None]
"""Returns the credentials of a principal for a server, or None if it needs none. A provider with a ``close``
method is closed together with the connection that requested it."""


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
    memory_servers: Mapping[str, Callable[[], Transport]] = field(
        default_factory=dict[str, Callable[[], Transport]]
    )
    """Factories of transports to servers in this process, by server id."""
    free_process_slot: Callable[[], Awaitable[None]] | None = None
    """Stops an idle child process if the maximum number of processes is running."""
    _net: OutboundHttp = field(init=False)

    def __post_init__(self) -> None:
        self._net = self.net or OutboundHttp()

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
        remembered = self.eras.recall(key) if server.protocol is ProtocolEra.AUTO else None
        era = _configured_era(server) or remembered
        seconds = server.timeouts.connect
        timeouts = Timeouts(seconds, silence=seconds, call=seconds)
        first_error: ServerError | None = None
        while True:
            # Each attempt needs a new session: a transport cannot be reopened, and some servers exit or close
            # the stream after a message of an era that they do not support.
            session = self._make_session(server, era, auth, callbacks or self.callbacks)
            on_created(session)
            if self.free_process_slot is not None and isinstance(server.transport, StdioSpec):
                await self.free_process_slot()
            try:
                await session.open()
                handshake = await self._run_handshake(session, server, era, timeouts)
                break
            except ServerError as error:
                first_error = first_error or error
                # Forgotten before the next attempt: if that fails or is cancelled as well, the next connect
                # must not start with an era that does not work.
                self.eras.remember(key, None)
                fallback = _choose_fallback_era(server, era, error, remembered=remembered is not None)
                if fallback is None:
                    # If SSE failed too, the first error tells more than that of a transport nobody
                    # configured.
                    raise connect_error(first_error if era == "sse" else error) from error
                # Closed at once and not with the others at the end: over stdio it is a process, which counts
                # against the limit and may hold resources that the next one needs.
                await session.close()
                era, remembered = fallback[0], None
        if server.protocol is ProtocolEra.AUTO:
            self.eras.remember(key, "sse" if era == "sse" else "modern" if handshake.modern else "legacy")
        return session

    async def _run_handshake(
        self, session: McpSession, server: Server, era: Era | None, timeouts: Timeouts
    ) -> HandshakeResult:
        if era in ("legacy", "sse"):
            return await complete_handshake(session, await initialize(session, timeouts))
        if server.protocol is ProtocolEra.MODERN:
            outcome = await discover(session, timeouts)
            if isinstance(outcome, HandshakeResult):
                return await complete_handshake(session, outcome)
            hint = 'remove "protocol": "modern" to let Toolyard detect the protocol version'
            raise BadAnswer("does not support protocol version 2026-07-28", hint=hint)
        return await negotiate_era(session, timeouts)

    def _make_session(
        self, server: Server, era: Era | None, auth: AuthProvider | None, callbacks: Callbacks
    ) -> McpSession:
        request_builder = RequestBuilder(self.client_info, callbacks.capabilities())
        return McpSession(
            server.id,
            self._make_transport(server, era, auth),
            request_builder,
            callbacks,
            self.traffic_limits,
        )

    def _make_transport(self, server: Server, era: Era | None, auth: AuthProvider | None) -> Transport:
        if (make := self.memory_servers.get(server.id)) is not None:
            return make()
        spec = server.transport
        if isinstance(spec, StdioSpec):
            return StdioTransport(spec, self.process_supervisor, limit=self.message_limit)
        # Imported late because they load aiohttp, which programs without HTTP servers do not need.
        from toolyard.transports.sse import SseTransport
        from toolyard.transports.streamable_http import StreamableHttpTransport

        kind = SseTransport if era == "sse" else StreamableHttpTransport
        guarded = server.private_addresses is False
        provider = (
            self._get_configured_provider(spec.auth_provider_id)
            if spec.auth_provider_id is not None
            else auth
        )
        return kind(spec, self._net, provider, guarded=guarded, limit=self.message_limit)

    def _get_configured_provider(self, provider_id: str) -> AuthProvider:
        provider = self.auth_providers.get(provider_id)
        if provider is None:
            raise Unreachable(
                f"auth provider '{provider_id}' is missing",
                hint="pass it in auth_providers under that id",
            )
        return provider

    async def close(self) -> None:
        """Close the shared resources. Call it after all sessions are closed."""
        self.free_process_slot = None
        if self.net is None:
            await self._net.close()
        await self.process_supervisor.close()


def _configured_era(server: Server) -> Era | None:
    if isinstance(server.transport, HttpSpec) and server.transport.type == "sse":
        return "sse"
    if server.protocol is ProtocolEra.LEGACY:
        return "legacy"
    return "modern" if server.protocol is ProtocolEra.MODERN else None


def _choose_fallback_era(
    server: Server, era: Era | None, error: ServerError, *, remembered: bool
) -> tuple[Era | None] | None:
    """Return the era to try next after this failure, in a tuple, or None to give up.

    The tuple distinguishes "detect the era again" (``(None,)``) from "no fallback" (``None``).
    """
    if remembered and isinstance(error, BadAnswer | RpcError):
        # It answered, but no longer in the remembered era: detect it again.
        return (None,)
    if server.protocol is ProtocolEra.MODERN or era == "sse":
        return None
    if isinstance(server.transport, StdioSpec):
        # Some old servers exit on the first message that they do not support.
        return ("legacy",) if era in (None, "modern") and isinstance(error, OutcomeUnknown) else None
    plain_refusal = isinstance(error, HttpStatus) and error.status in (400, 404, 405)
    return ("sse",) if plain_refusal else None


def server_fingerprint(server: Server) -> str:
    """Return a hash that identifies a server's definition: another command or URL is another server."""
    spec = server.transport
    if isinstance(spec, StdioSpec):
        words = (spec.command, *spec.args, spec.cwd or "")
    else:
        words = (spec.type, spec.url)
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()
