"""Trusted reverse proxies, and the client address behind them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

from toolyard.accounts.errors import StartRefused
from toolyard.net import is_in_networks, parse_ip_address

__all__ = ["TrustedProxies", "is_loopback"]

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedProxies:
    """Parsed setting ``trusted_proxies``. Raises StartRefused for an invalid address or network."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks = tuple(_parse_network(entry) for entry in entries)

    def __contains__(self, peer: str) -> bool:
        """Return whether a socket's peer is a trusted proxy. False for an invalid address."""
        ip = parse_ip_address(peer) if self._networks else None
        return ip is not None and is_in_networks(ip, self._networks)

    def client_address(self, peer: str, forwarded_for: str) -> str:
        """Return the client address: the last one in ``X-Forwarded-For`` that is not a trusted proxy.

        If the peer is not a trusted proxy, return the peer: the header may be forged then. For the same
        reason, entries before the returned one are ignored.
        """
        if peer not in self:
            return peer
        client = peer
        for hop in reversed(forwarded_for.split(",")):
            ip = parse_ip_address(_strip_port(hop.strip()))
            if ip is None:
                return client
            client = str(ip)
            if client not in self:
                return client
        return client


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without asking a resolver."""
    name = host.strip("[]").lower()
    if name in _LOOPBACK_HOSTS:
        return True
    ip = parse_ip_address(name)
    return ip is not None and ip.is_loopback


def _parse_network(entry: str) -> _Network:
    try:
        return ipaddress.ip_network(entry.strip(), strict=False)
    except ValueError:
        raise StartRefused(
            f"trusted_proxies: '{entry}' is neither an address nor a network",
            hint="write addresses such as 10.0.0.5, or networks such as 10.0.0.0/24",
        ) from None


def _strip_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
