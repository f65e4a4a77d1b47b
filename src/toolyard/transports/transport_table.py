"""Table of all transports. A new transport is one module and one entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from toolyard.auth import AuthProvider
from toolyard.net import OutboundHttp
from toolyard.protocol.eras import ERAS, LEGACY, Era
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.transports.stdio.transport import StdioTransport
from toolyard.transports.transport import Transport
from toolyard.types.server import HttpSpec, Server, StdioSpec, TransportName

__all__ = ["TRANSPORTS", "TransportResources", "TransportType"]


@dataclass(frozen=True, slots=True)
class TransportResources:
    """Resources that all transports of a process share."""

    net: OutboundHttp
    process_supervisor: ProcessSupervisor
    message_limit: int


@dataclass(frozen=True, slots=True)
class TransportType:
    """One transport, by the name that its servers have as ``type``."""

    make: Callable[[Server, AuthProvider | None, TransportResources], Transport]
    """Returns an unopened transport. Imports its module late if that loads aiohttp, which programs without
    HTTP servers do not need."""
    eras: tuple[Era, ...] = ERAS
    """Eras of the protocol that exist on this transport, newest first."""
    older: TransportName | None = None
    """Transport to try if the server refuses the first request over this one."""
    starts_process: bool = False
    """Opening the transport starts a process, which may exit on a message that it does not know."""


def _make_stdio(server: Server, auth: AuthProvider | None, resources: TransportResources) -> Transport:
    spec = cast("StdioSpec", server.transport)
    return StdioTransport(spec, resources.process_supervisor, limit=resources.message_limit)


def _make_http(server: Server, auth: AuthProvider | None, resources: TransportResources) -> Transport:
    from toolyard.transports.streamable_http import StreamableHttpTransport

    return StreamableHttpTransport(
        cast("HttpSpec", server.transport),
        resources.net,
        auth,
        guarded=server.private_addresses is False,
        limit=resources.message_limit,
    )


def _make_sse(server: Server, auth: AuthProvider | None, resources: TransportResources) -> Transport:
    from toolyard.transports.sse import SseTransport

    return SseTransport(
        cast("HttpSpec", server.transport),
        resources.net,
        auth,
        guarded=server.private_addresses is False,
        limit=resources.message_limit,
    )


TRANSPORTS: Mapping[str, TransportType] = {
    "stdio": TransportType(_make_stdio, starts_process=True),
    "http": TransportType(_make_http, older="sse"),
    "sse": TransportType(_make_sse, eras=(LEGACY,)),
}
