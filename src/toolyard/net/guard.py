"""Which addresses may be connected to. Decided for the address at the socket, never for a name."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

__all__ = ["AddressRefused", "guarded_socket", "is_private"]

# Special blocks that Python's own flags leave out or judge differently from version to version.
_BLOCKS = (
    "100.64.0.0/10 192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 "
    "64:ff9b::/96 64:ff9b:1::/48 2002::/16 3fff::/20 fec0::/10"
)
_SPECIAL = tuple(ipaddress.ip_network(block) for block in _BLOCKS.split())


class AddressRefused(OSError):
    """The address is private, and nobody allowed private addresses for this request."""


def is_private(address: str) -> bool:
    """Whether an IP address is anything but a public unicast one. What cannot be read counts as private."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        return True
    return any(ip in block for block in _SPECIAL if block.version == ip.version)


def guarded_socket(info: tuple[Any, ...]) -> socket.socket:
    """Make the socket for one address of a host, or refuse. aiohttp calls this for each it tries."""
    family, kind, proto, _, address = info
    host = str(address[0])
    if is_private(host):
        raise AddressRefused(f"the address {host} is private")
    return socket.socket(family, kind, proto)
