"""Decides which IP addresses may be connected to. Checked when the socket is created, never by host name.

A check of the name alone could be bypassed by DNS rebinding: a name may resolve to a public address when it
is checked and to a private one when it is connected to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.errors import ConfigError, Problem

__all__ = [
    "AddressGuard",
    "AddressRefused",
    "SocketFactory",
    "collect_refusals",
    "is_in_networks",
    "is_private",
    "parse_ip_address",
]

# Special-purpose blocks that the flags of the ipaddress module omit, or classify differently by version.
_SPECIAL_BLOCKS = (
    "100.64.0.0/10 192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 "
    "64:ff9b::/96 64:ff9b:1::/48 2002::/16 3fff::/20 fec0::/10"
)
_SPECIAL_NETWORKS = tuple(ipaddress.ip_network(block) for block in _SPECIAL_BLOCKS.split())

SocketFactory: TypeAlias = Callable[[int, int, int], socket.socket]
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressRefused(OSError):
    """Raised for an address that is private, or denied by the operator (``is_denied``)."""

    def __init__(self, address: str, *, is_denied: bool) -> None:
        super().__init__(f"the address {address} is {'denied' if is_denied else 'private'}")
        self.address = address
        self.is_denied = is_denied


_refusals: ContextVar[list[AddressRefused] | None] = ContextVar("address_refusals", default=None)


@contextmanager
def collect_refusals() -> Generator[list[AddressRefused], None, None]:
    """Collect all refusals of guards within the block, including those in tasks that it starts."""
    refusals: list[AddressRefused] = []
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def is_private(address: str) -> bool:
    """Return True for anything but a public unicast IP address. An unparsable address counts as private."""
    ip = parse_ip_address(address)
    if ip is None or not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        return True
    return is_in_networks(ip, _SPECIAL_NETWORKS)


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Checks every address before a guarded request connects to it. ``deny`` takes precedence over ``allow``.

    ``socket_factory`` creates the socket for an address that passed.
    """

    allow: tuple[IpNetwork, ...] = ()
    deny: tuple[IpNetwork, ...] = ()
    socket_factory: SocketFactory = socket.socket

    @classmethod
    def from_settings(cls, allow: Iterable[str], deny: Iterable[str]) -> AddressGuard:
        """Create a guard from addresses and networks in text form. Raise ConfigError."""
        problems: list[Problem] = []
        allowed = _parse_networks(allow, "guard_allow", problems)
        denied = _parse_networks(deny, "guard_deny", problems)
        if problems:
            raise ConfigError(problems)
        return cls(allowed, denied)

    def find_refusal(self, address: str) -> AddressRefused | None:
        """Return the refusal for an IP address, or None if it may be connected to."""
        ip = parse_ip_address(address)
        if ip is not None and is_in_networks(ip, self.deny):
            return AddressRefused(address, is_denied=True)
        if is_private(address) and not (ip is not None and is_in_networks(ip, self.allow)):
            return AddressRefused(address, is_denied=False)
        return None

    def create_checked_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Create the socket for one address of a host, or raise AddressRefused. Called by aiohttp."""
        family, kind, proto, _, address = info
        if (refusal := self.find_refusal(str(address[0]))) is not None:
            if (refusals := _refusals.get()) is not None:
                refusals.append(refusal)
            raise refusal
        return self.socket_factory(family, kind, proto)


def parse_ip_address(address: str) -> IpAddress | None:
    """Parse an address; an IPv4-mapped IPv6 address counts as the IPv4 address that it contains."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def is_in_networks(ip: IpAddress, blocks: Iterable[IpNetwork]) -> bool:
    """Return True if one of the networks contains the address."""
    return any(ip in block for block in blocks if block.version == ip.version)


def _parse_networks(words: Iterable[str], name: str, problems: list[Problem]) -> tuple[IpNetwork, ...]:
    networks: list[IpNetwork] = []
    for word in words:
        try:
            networks.append(ipaddress.ip_network(word.strip()))
        except ValueError:
            hint = 'write it like "10.0.0.5", "10.0.0.0/8" or "fd00::/8"'
            problems.append(Problem(f"{word!r} is not a valid IP address or network", path=name, hint=hint))
    return tuple(networks)
