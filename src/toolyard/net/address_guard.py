"""Which addresses may be connected to. Decided for the address at the socket, never for a name."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.errors import ConfigError, Problem

__all__ = ["AddressGuard", "AddressRefused", "SocketFactory", "is_private"]

# Special blocks that Python's own flags leave out or judge differently from version to version.
_SPECIAL_BLOCKS = (
    "100.64.0.0/10 192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 "
    "64:ff9b::/96 64:ff9b:1::/48 2002::/16 3fff::/20 fec0::/10"
)
_SPECIAL_NETWORKS = tuple(ipaddress.ip_network(block) for block in _SPECIAL_BLOCKS.split())

SocketFactory: TypeAlias = Callable[[int, int, int], socket.socket]
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressRefused(OSError):
    """The address is private or denied, and nobody allowed it for this request."""


def is_private(address: str) -> bool:
    """Whether an IP address is anything but a public unicast one. What cannot be read counts as private."""
    ip = _parse_address(address)
    if ip is None or not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        return True
    return _is_in_networks(ip, _SPECIAL_NETWORKS)


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Judges every address that a guarded request is about to dial. ``deny`` wins over ``allow``.

    ``make_socket`` makes the socket of an address that passed.
    """

    allow: tuple[IpNetwork, ...] = ()
    deny: tuple[IpNetwork, ...] = ()
    socket_factory: SocketFactory = socket.socket

    @classmethod
    def from_settings(cls, allow: Iterable[str], deny: Iterable[str]) -> AddressGuard:
        """From addresses and networks as the operator writes them. Raises ConfigError."""
        problems: list[Problem] = []
        allowed = _parse_networks(allow, "guard_allow", problems)
        denied = _parse_networks(deny, "guard_deny", problems)
        if problems:
            raise ConfigError(problems)
        return cls(allowed, denied)

    def refusal_reason(self, address: str) -> str | None:
        """Why an IP address may not be dialled; None where it may."""
        ip = _parse_address(address)
        if ip is not None and _is_in_networks(ip, self.deny):
            return f"the address {address} is denied"
        if is_private(address) and not (ip is not None and _is_in_networks(ip, self.allow)):
            return f"the address {address} is private"
        return None

    def create_checked_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """The socket for one address of a host, or AddressRefused. aiohttp calls this for each it tries."""
        family, kind, proto, _, address = info
        if (reason := self.refusal_reason(str(address[0]))) is not None:
            raise AddressRefused(reason)
        return self.socket_factory(family, kind, proto)


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that is really meant: an IPv4 one may come in the clothes of IPv6."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _is_in_networks(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, blocks: tuple[IpNetwork, ...]) -> bool:
    return any(ip in block for block in blocks if block.version == ip.version)


def _parse_networks(words: Iterable[str], name: str, problems: list[Problem]) -> tuple[IpNetwork, ...]:
    found: list[IpNetwork] = []
    for word in words:
        try:
            found.append(ipaddress.ip_network(word.strip()))
        except ValueError:
            hint = 'write it like "10.0.0.5", "10.0.0.0/8" or "fd00::/8"'
            problems.append(Problem(f"{word!r} is no IP address or network", path=name, hint=hint))
    return tuple(found)
