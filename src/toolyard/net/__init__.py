"""The one HTTP session, TLS context and address guard that every outgoing request uses.

What needs the HTTP library is loaded when it is first used: servers that are programs need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolyard.net.address_guard import AddressGuard, AddressRefused, is_private
from toolyard.net.outbound import OutboundHttp, is_same_origin

if TYPE_CHECKING:
    from toolyard.net.http1.response import HttpProtocolError, HttpResponse

__all__ = [
    "AddressGuard",
    "AddressRefused",
    "HttpProtocolError",
    "HttpResponse",
    "OutboundHttp",
    "is_private",
    "is_same_origin",
]


def __getattr__(name: str) -> object:
    if name not in ("HttpResponse", "HttpProtocolError"):
        raise AttributeError(f"module 'toolyard.net' has no attribute '{name}'")
    from toolyard.net.http1 import response

    return getattr(response, name)
