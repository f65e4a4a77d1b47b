"""Chats and gateway clients that use one connection."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from toolyard.clients.connector import ConnectionManagerLimits
from toolyard.protocol.constants import LOG_LEVELS
from toolyard.types.call import RequestClient

__all__ = ["ConnectionClients"]


class ConnectionClients:
    """Names of the clients that use one connection, and those that get the log messages from its server."""

    def __init__(self, limits: ConnectionManagerLimits) -> None:
        self._limits = limits
        self.names_by_key: dict[str, str] = {}
        """Clients that have used the connection and have not been released."""
        self._last_requests: dict[str, float] = {}
        """Names of clients without a key, with the time at which their last request ended."""
        self._log_receivers: dict[RequestClient, None] = {}

    def add(self, client: RequestClient) -> None:
        """Remember a client that has a key."""
        if client.key is not None:
            self.names_by_key[client.key] = client.name

    def on_request_end(self, client: RequestClient) -> None:
        """Remember when a client without a key last used the connection."""
        if client.key is None:
            self._last_requests[client.name] = time.monotonic()
            if len(self._last_requests) > self._limits.recent_clients:
                del self._last_requests[min(self._last_requests, key=self._last_requests.__getitem__)]
        if self._log_receivers and client.is_of_one_request:
            self._log_receivers.pop(client, None)

    def release(self, key: str) -> None:
        """Forget a client that does not use the connection any more."""
        self.names_by_key.pop(key, None)
        for client in [client for client in self._log_receivers if client.key == key]:
            del self._log_receivers[client]

    def list_names(self, clients_of_requests: Iterable[RequestClient]) -> list[str]:
        """Return the names of all clients, sorted; ``clients_of_requests`` are those that wait for a result.

        Clients without a key cannot be told apart: each name is listed once, while a request of it waits and
        for a while after its last one.
        """
        limit = time.monotonic() - self._limits.recent_client_seconds
        names = {name for name, last in self._last_requests.items() if last > limit}
        names |= {each.name for each in clients_of_requests if each.key is None}
        return sorted([*self.names_by_key.values(), *names])

    # Log messages.

    def add_log_receiver(self, client: RequestClient) -> None:
        """Send a client the log messages of the server."""
        self._log_receivers[client] = None

    def finest_log_level(self) -> str:
        """Return the finest level that a receiver of log messages asked for. There must be one."""
        levels = [client.log_level for client in self._log_receivers if client.log_level is not None]
        return min(levels, key=LOG_LEVELS.index)

    def forward_log(self, params: Mapping[str, Any]) -> None:
        """Send a log message of the server to its receivers."""
        for client in list(self._log_receivers):
            if client.send_log is not None:
                client.send_log(params)
