"""Bounds on open connections: in all, and for each address."""

from __future__ import annotations

import ipaddress
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.config.settings.choices import PeopleMode
from toolyard.config.settings.table import Settings

__all__ = ["Connection", "ConnectionLimits", "connection_limits"]

log = logging.getLogger("toolyard.web")

_LOG_SECONDS = 60.0
_SHARE = 2
"""Of the descriptors of a process, one in so many at most is for connections to it: calls need the others."""


class Connection(Protocol):
    """An open connection."""

    def give_up(self) -> None:
        """Close it, because others need its place."""
        ...


class ConnectionLimits:
    """The open connections of one process.

    Where all places are taken, the connection that has been idle for longest makes room: one that has not
    sent a byte of a request, or not since its last response. Without such a one the new one is refused.
    """

    def __init__(
        self, total: int, per_address: int, *, is_exempt: Callable[[str], bool] = lambda _: False
    ) -> None:
        """``is_exempt`` says which addresses are bounded by the total alone."""
        self.total = total
        self._per_address = per_address
        self._is_exempt = is_exempt
        self._open: dict[Connection, str] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._addresses: Counter[str] = Counter()
        self._logged = -_LOG_SECONDS

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: Connection, address: str) -> bool:
        """Count a new connection as idle. Return False where there is no place for it."""
        group = _group(address)
        if self._addresses[group] >= self._per_address and not self._is_exempt(address):
            self._log("%d connections from %s are open: no more are taken from there", group)
            return False
        if len(self._open) >= self.total:
            if not self._idle:
                self._log("%d connections are open, and none of them is idle: no more are taken")
                return False
            self._idle.popitem(last=False)[0].give_up()
        self._open[connection] = group
        self._addresses[group] += 1
        self._idle[connection] = None
        return True

    def leave(self, connection: Connection) -> None:
        """A connection was closed."""
        self._idle.pop(connection, None)
        group = self._open.pop(connection, None)
        if group is not None:
            self._addresses[group] -= 1
            if not self._addresses[group]:
                del self._addresses[group]

    def busy(self, connection: Connection) -> None:
        """A request has begun."""
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        """Every request has been answered."""
        self._idle[connection] = None

    def _log(self, words: str, group: str | None = None) -> None:
        now = time.monotonic()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            if group is None:
                log.warning(words, len(self._open))
            else:
                log.warning(words, self._addresses[group], group)


def connection_limits(settings: Settings, descriptors: int | None) -> ConnectionLimits:
    """Return the limits of a deployment whose process may open so many descriptors; None: any number."""
    proxies = TrustedProxies(settings.trusted_proxies)
    alone = settings.people_mode is PeopleMode.NONE
    total = settings.max_connections
    if descriptors is not None:
        total = min(total, descriptors // _SHARE)
    return ConnectionLimits(
        total,
        settings.max_connections_per_address,
        is_exempt=lambda address: address in proxies or (alone and is_loopback(address)),
    )


def _group(address: str) -> str:
    """Return what is counted as one address: of IPv6 the network that one customer of a provider gets."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((ip, 64), strict=False))
