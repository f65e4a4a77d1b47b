"""Limits on open connections, in total and per client address."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from toolyard.accounts.attempt_limits import address_network
from toolyard.accounts.proxy_addresses import TrustedProxies, is_loopback
from toolyard.config.settings.table import PeopleMode, Settings

__all__ = [
    "MAX_DESCRIPTORS",
    "ConnectionLimits",
    "EvictableConnection",
    "create_connection_limits",
    "raise_descriptor_limit",
]


log = logging.getLogger("toolyard.web")

_LOG_INTERVAL_SECONDS = 60.0
_DESCRIPTORS_PER_CONNECTION = 2
"""File descriptors reserved per client connection: one for itself, the others for calls to servers."""


class EvictableConnection(Protocol):
    """A connection that can be closed in favour of another one."""

    def evict(self) -> None:
        """Close the connection, because the limit is reached."""
        ...


class ConnectionLimits:
    """The open connections of one process.

    At the limit, a new connection replaces the one that has been idle for longest, where idle means that it
    has sent no complete request since it was opened or since its last response, or does not read a response.
    If none is idle, the new connection is refused.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_address: int,
        *,
        is_exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``is_exempt`` returns True for addresses to which only the total limit applies."""
        self.max_connections = max_connections
        self._max_per_address = max_per_address
        self._is_exempt = is_exempt
        self._open_connections: dict[EvictableConnection, str] = {}
        self._idle_connections: OrderedDict[EvictableConnection, None] = OrderedDict()
        self._count_by_address: Counter[str] = Counter()
        self._last_logged_at = -_LOG_INTERVAL_SECONDS

    def __len__(self) -> int:
        return len(self._open_connections)

    @property
    def idle_count(self) -> int:
        """Number of open connections that new ones may replace."""
        return len(self._idle_connections)

    def add(self, connection: EvictableConnection, address: str) -> bool:
        """Count a new connection as idle. Return False if it must be refused."""
        group = address_network(address)
        if self._count_by_address[group] >= self._max_per_address and not self._is_exempt(address):
            self._log_refusal("refusing connections: %d from %s are open", group)
            return False
        if len(self._open_connections) >= self.max_connections:
            if not self._idle_connections:
                self._log_refusal("refusing connections: %d are open and none is idle")
                return False
            # The evicted connection is removed when its socket is closed, shortly after the new one is added.
            self._idle_connections.popitem(last=False)[0].evict()
        self._open_connections[connection] = group
        self._count_by_address[group] += 1
        self._idle_connections[connection] = None
        return True

    def remove(self, connection: EvictableConnection) -> None:
        """Stop counting a closed connection."""
        self._idle_connections.pop(connection, None)
        group = self._open_connections.pop(connection, None)
        if group is not None:
            # Addresses without connections are removed, or a scan would fill the memory.
            self._count_by_address[group] -= 1
            if not self._count_by_address[group]:
                del self._count_by_address[group]

    def mark_busy(self, connection: EvictableConnection) -> None:
        """Protect a connection from eviction while a request is in progress."""
        self._idle_connections.pop(connection, None)

    def mark_idle(self, connection: EvictableConnection) -> None:
        """Make a connection evictable again, once all its requests are answered."""
        self._idle_connections[connection] = None

    def _log_refusal(self, message: str, group: str | None = None) -> None:
        # At most one line per interval: an attack must not flood the log.
        now = time.monotonic()
        if now - self._last_logged_at >= _LOG_INTERVAL_SECONDS:
            self._last_logged_at = now
            if group is None:
                log.warning(message, len(self._open_connections))
            else:
                log.warning(message, self._count_by_address[group], group)


def create_connection_limits(settings: Settings, max_descriptors: int | None) -> ConnectionLimits:
    """Return the limits for a process that may open ``max_descriptors`` files (None: no limit)."""
    proxies = TrustedProxies(settings.trusted_proxies)
    is_single_user = settings.people_mode is PeopleMode.NONE
    total = settings.max_connections
    if max_descriptors is not None:
        total = min(total, max_descriptors // _DESCRIPTORS_PER_CONNECTION)
    return ConnectionLimits(
        total,
        settings.max_connections_per_address,
        is_exempt=lambda address: address in proxies or (is_single_user and is_loopback(address)),
    )


MAX_DESCRIPTORS = 65_536


def raise_descriptor_limit(max_descriptors: int = MAX_DESCRIPTORS) -> int | None:
    """Raise the soft limit of open files towards the hard limit; return the resulting limit, or None.

    Soft limits are low for the sake of programs that use select(), which this one does not.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = max_descriptors if hard == resource.RLIM_INFINITY else min(max_descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
            soft = target
    return None if soft == resource.RLIM_INFINITY else soft
