"""Bounds on open connections: in all, and for each address."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings

__all__ = ["ConnectionLimits", "EvictableConnection", "create_connection_limits", "raise_descriptor_limit"]


log = logging.getLogger("toolyard.web")

_LOG_INTERVAL_SECONDS = 60.0
_DESCRIPTORS_PER_CONNECTION = 2
"""Of the descriptors of a process, one in so many at most is for connections to it: calls need the others."""


class EvictableConnection(Protocol):
    """An open connection."""

    def evict(self) -> None:
        """Close it, because others need its place."""
        ...


class ConnectionLimits:
    """The open connections of one process.

    Where all places are taken, the connection that has been idle for longest makes room: one that has not
    sent a byte of a request, or not since its last response. Without such a one the new one is refused.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_address: int,
        *,
        is_exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``is_exempt`` says which addresses are bounded by the total alone."""
        self.total = max_connections
        self._max_per_address = max_per_address
        self._is_exempt = is_exempt
        self._open_connections: dict[EvictableConnection, str] = {}
        self._idle_connections: OrderedDict[EvictableConnection, None] = OrderedDict()
        self._count_by_address: Counter[str] = Counter()
        self._last_logged_at = -_LOG_INTERVAL_SECONDS

    def __len__(self) -> int:
        return len(self._open_connections)

    def add(self, connection: EvictableConnection, address: str) -> bool:
        """Count a new connection as idle. Return False where there is no place for it."""
        group = _get_address_group(address)
        if self._count_by_address[group] >= self._max_per_address and not self._is_exempt(address):
            self._log_refusal("%d connections from %s are open: no more are taken from there", group)
            return False
        if len(self._open_connections) >= self.total:
            if not self._idle_connections:
                self._log_refusal("%d connections are open, and none of them is idle: no more are taken")
                return False
            self._idle_connections.popitem(last=False)[0].evict()
        self._open_connections[connection] = group
        self._count_by_address[group] += 1
        self._idle_connections[connection] = None
        return True

    def remove(self, connection: EvictableConnection) -> None:
        """A connection was closed."""
        self._idle_connections.pop(connection, None)
        group = self._open_connections.pop(connection, None)
        if group is not None:
            self._count_by_address[group] -= 1
            if not self._count_by_address[group]:
                del self._count_by_address[group]

    def mark_busy(self, connection: EvictableConnection) -> None:
        """A request has begun."""
        self._idle_connections.pop(connection, None)

    def mark_idle(self, connection: EvictableConnection) -> None:
        """Every request has been answered."""
        self._idle_connections[connection] = None

    def _log_refusal(self, words: str, group: str | None = None) -> None:
        now = time.monotonic()
        if now - self._last_logged_at >= _LOG_INTERVAL_SECONDS:
            self._last_logged_at = now
            if group is None:
                log.warning(words, len(self._open_connections))
            else:
                log.warning(words, self._count_by_address[group], group)


def create_connection_limits(settings: Settings, max_descriptors: int | None) -> ConnectionLimits:
    """Return the limits of a deployment whose process may open so many descriptors; None: any number."""
    proxies = TrustedProxies(settings.trusted_proxies)
    alone = settings.people_mode is PeopleMode.NONE
    total = settings.max_connections
    if max_descriptors is not None:
        total = min(total, max_descriptors // _DESCRIPTORS_PER_CONNECTION)
    return ConnectionLimits(
        total,
        settings.max_connections_per_address,
        is_exempt=lambda address: address in proxies or (alone and is_loopback(address)),
    )


def _get_address_group(address: str) -> str:
    """Return what is counted as one address: of IPv6 the network that one customer of a provider gets."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False))


_MAX_DESCRIPTORS = 65_536


def raise_descriptor_limit(max_descriptors: int = _MAX_DESCRIPTORS) -> int | None:
    """Raise the soft limit as far as the hard one allows, and return the limit in force; None: there is none.

    Soft limits are low for the sake of programs that use select(), which we do not.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_descriptors if hard == resource.RLIM_INFINITY else min(max_descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft
