"""Making a link to a server: the right transport, the right era, nothing left behind on failure."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.handshake import (
    Era,
    EraMemory,
    Eras,
    connect_error,
    discover,
    initialize,
    negotiate,
    settle,
)
from toolyard.clients.session import Link, Patience
from toolyard.clients.unsolicited_traffic import TrafficLimits
from toolyard.errors import BadAnswer, HttpStatus, OutcomeUnknown, RpcError, ServerError, Unreachable
from toolyard.net import Net
from toolyard.protocol.client import Facts, Speaker
from toolyard.transports.stdio.supervisor import Nursery
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.transports.transport import MESSAGE_LIMIT, Transport
from toolyard.types.principal import Principal
from toolyard.types.server import HttpSpec, Protocol, Server, StdioSpec

__all__ = ["AuthFor", "Dialer", "fingerprint"]

AuthFor: TypeAlias = Callable[[Server, Principal], AuthProvider | None]
"""Gives the credentials of a principal for a server; None where it needs none. What has a ``close`` is closed
with the connection that asked."""


@dataclass(slots=True)
class Dialer:
    """Everything that links share. One for a manager. A ``net`` that is given is left open by ``close``."""

    info: Mapping[str, Any]
    callbacks: Callbacks = field(default_factory=Callbacks)
    auth_providers: Mapping[str, AuthProvider] = field(default_factory=dict[str, AuthProvider])
    auth_for: AuthFor | None = None
    eras: EraMemory = field(default_factory=Eras)
    net: Net | None = None
    nursery: Nursery = field(default_factory=Nursery)
    message_limit: int = MESSAGE_LIMIT
    traffic: TrafficLimits = field(default_factory=TrafficLimits)
    memory_servers: Mapping[str, Callable[[], Transport]] = field(
        default_factory=dict[str, Callable[[], Transport]]
    )
    """Transports of servers in this process, by server id."""
    make_room: Callable[[], Awaitable[None]] | None = None
    """Ends a child that nobody needs, where there are as many as may be."""
    _net: Net = field(init=False)

    def __post_init__(self) -> None:
        self._net = self.net or Net()

    def lookup_auth(self, server: Server, principal: Principal) -> AuthProvider | None:
        """The credentials that this principal has for a server and that are its connection's own, to be
        closed with it; None where there are none, or they belong to the program."""
        spec = server.transport
        if self.auth_for is None or not isinstance(spec, HttpSpec) or spec.auth_provider_id is not None:
            return None
        return self.auth_for(server, principal)

    async def dial(
        self,
        server: Server,
        began: Callable[[Link], None],
        auth: AuthProvider | None = None,
        callbacks: Callbacks | None = None,
    ) -> Link:
        """A link that has agreed on its era. ``began`` is told of each link before it is opened, and
        whoever is told must close it, made or not. ``auth`` is what ``lookup_auth`` gave; ``callbacks`` are
        those of a connection that has its own.

        Raises a ServerError that means that nothing was executed.
        """
        key = fingerprint(server)
        remembered = self.eras.recall(key) if server.protocol is Protocol.AUTO else None
        era = _configured_era(server) or remembered
        patience = Patience(server.timeouts.connect, server.timeouts.connect)
        first: ServerError | None = None
        while True:
            link = self._link(server, era, auth, callbacks or self.callbacks)
            began(link)
            if self.make_room is not None and isinstance(server.transport, StdioSpec):
                await self.make_room()
            try:
                await link.open()
                facts = await self._begin(link, server, era, patience)
                break
            except ServerError as error:
                first = first or error
                self.eras.remember(key, None)
                way = _other_way(server, era, error, remembered=remembered is not None)
                if way is None:
                    told = connect_error(first if era == "sse" else error)
                    raise told from error
                await link.close()
                era, remembered = way[0], None
        if server.protocol is Protocol.AUTO:
            self.eras.remember(key, "sse" if era == "sse" else "modern" if facts.modern else "legacy")
        return link

    async def _begin(self, link: Link, server: Server, era: Era | None, patience: Patience) -> Facts:
        if era in ("legacy", "sse"):
            return await settle(link, await initialize(link, patience))
        if server.protocol is Protocol.MODERN:
            outcome = await discover(link, patience)
            if isinstance(outcome, Facts):
                return await settle(link, outcome)
            hint = 'remove "protocol": "modern" to let Toolyard find out what it speaks'
            raise BadAnswer("does not speak protocol version 2026-07-28", hint=hint)
        return await negotiate(link, patience)

    def _link(self, server: Server, era: Era | None, auth: AuthProvider | None, callbacks: Callbacks) -> Link:
        speaker = Speaker(self.info, callbacks.capabilities())
        return Link(server.id, self._transport(server, era, auth), speaker, callbacks, self.traffic)

    def _transport(self, server: Server, era: Era | None, auth: AuthProvider | None) -> Transport:
        if (make := self.memory_servers.get(server.id)) is not None:
            return make()
        spec = server.transport
        if isinstance(spec, StdioSpec):
            return StdioTransport(spec, self.nursery, limit=self.message_limit)
        # aiohttp, which programs do without.
        from toolyard.transports.sse import SseTransport
        from toolyard.transports.streamable_http import HttpTransport

        kind = SseTransport if era == "sse" else HttpTransport
        guarded = server.private_addresses is False
        provider = self._given(spec.auth_provider_id) if spec.auth_provider_id is not None else auth
        return kind(spec, self._net, provider, guarded=guarded, limit=self.message_limit)

    def _given(self, provider_id: str) -> AuthProvider:
        provider = self.auth_providers.get(provider_id)
        if provider is None:
            raise Unreachable(
                f"no auth provider '{provider_id}' was given",
                hint="pass it in auth_providers under that id",
            )
        return provider

    async def close(self) -> None:
        """Close what links shared, after the links."""
        self.make_room = None
        if self.net is None:
            await self._net.close()
        await self.nursery.close()


def _configured_era(server: Server) -> Era | None:
    if isinstance(server.transport, HttpSpec) and server.transport.type == "sse":
        return "sse"
    if server.protocol is Protocol.LEGACY:
        return "legacy"
    return "modern" if server.protocol is Protocol.MODERN else None


def _other_way(
    server: Server, era: Era | None, error: ServerError, *, remembered: bool
) -> tuple[Era | None] | None:
    """Another way to begin that this failure suggests, in a tuple, or None where there is none."""
    if remembered and isinstance(error, BadAnswer | RpcError):
        # It answered, but not as it used to: ask anew.
        return (None,)
    if server.protocol is Protocol.MODERN or era == "sse":
        return None
    if isinstance(server.transport, StdioSpec):
        # Some old servers exit on the first message that they do not know.
        return ("legacy",) if era in (None, "modern") and isinstance(error, OutcomeUnknown) else None
    plain_refusal = isinstance(error, HttpStatus) and error.status in (400, 404, 405)
    return ("sse",) if plain_refusal else None


def fingerprint(server: Server) -> str:
    """What names a server's definition in memory: another command or address is another server."""
    spec = server.transport
    if isinstance(spec, StdioSpec):
        words = (spec.command, *spec.args, spec.cwd or "")
    else:
        words = (spec.type, spec.url)
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()
