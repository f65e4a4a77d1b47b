"""Outgoing HTTP: shared sessions and TLS context, address guard, DNS, and an HTTP/1.1 connection pool.

Imports only ``errors`` from Toolyard. aiohttp is loaded on first use, because programs with stdio servers
alone do not need it. Start with ``outbound.OutboundHttp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolyard.net.address_guard import (
    AddressGuard,
    AddressRefused,
    is_in_networks,
    is_private,
    parse_ip_address,
)
from toolyard.net.outbound import OutboundHttp, is_same_origin

if TYPE_CHECKING:
    from toolyard.net.http1.response import HttpProtocolError, HttpResponse

__all__ = [
    "AddressGuard",
    "AddressRefused",
    "HttpProtocolError",
    "HttpResponse",
    "OutboundHttp",
    "is_in_networks",
    "is_private",
    "is_same_origin",
    "parse_ip_address",
]


def __getattr__(name: str) -> object:
    if name not in ("HttpResponse", "HttpProtocolError"):
        raise AttributeError(f"module 'toolyard.net' has no attribute '{name}'")
    from toolyard.net.http1 import response

    return getattr(response, name)
