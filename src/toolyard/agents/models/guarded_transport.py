"""HTTP transport for models at addresses that an admin entered: it connects to public addresses only.

Loaded with the libraries of models, whose HTTP client it extends.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any, cast

import httpcore2
import httpx2

from toolyard.net import AddressGuard, AddressRefused
from toolyard.net.guarded_connector import DaemonThreadResolver

__all__ = ["GuardedTransport"]

_MAX_CONNECTIONS = 1_000
_KEEP_ALIVE_SECONDS = 5.0


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Checks the address of every connection, and uses no proxy, which would connect to any address."""

    def __init__(self, guard: AddressGuard) -> None:
        context = httpx2.create_ssl_context()
        super().__init__(verify=context)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            network_backend=_GuardedBackend(guard),
        )


class _GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host itself and connects to the checked address, so that a name cannot change in between."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())
        self._resolver = DaemonThreadResolver()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"the host name {host} was not resolved in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        failure: Exception | None = None
        for address in (each["host"] for each in found):
            try:
                if (refusal := self._guard.find_refusal(address)) is not None:
                    raise refusal
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except AddressRefused as error:
                # The pool clears ``__cause__``; the context stays, from which the hint of the error follows.
                failure = httpcore2.ConnectError(str(error))
                failure.__context__ = error
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"the host name {host} has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise httpcore2.ConnectError("a model address cannot be a Unix socket")

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)
