"""Connector and resolver of the aiohttp sessions.

Refused addresses are reported as AddressRefused, and an unresponsive name server delays nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client import ClientTimeout
from aiohttp.connector import Connection
from aiohttp.resolver import ThreadedResolver
from aiohttp.tracing import Trace

from toolyard.net.address_guard import collect_refusals

__all__ = ["DaemonThreadResolver", "GuardedConnector"]


class GuardedConnector(aiohttp.TCPConnector):
    """TCPConnector that raises ClientConnectorError with an AddressRefused as ``os_error`` for refused
    addresses.

    A host may have several addresses. If connecting fails for all of them, aiohttp raises a new OSError with
    the joined texts of the failures, from which their types cannot be recovered. The guard therefore records
    its refusals, and one of them replaces the joined error. A private address takes precedence over a denied
    one, because the user can allow it.
    """

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        with collect_refusals() as refusals:
            try:
                return await super().connect(req, traces, timeout)
            except aiohttp.ClientConnectorError as error:
                # A TLS failure means that one address was allowed and reached: that is the error to report.
                if not refusals or isinstance(error, aiohttp.ClientSSLError):
                    raise
                refusal = next((each for each in refusals if not each.is_denied), refusals[0])
                raise aiohttp.ClientConnectorError(req.connection_key, refusal) from error


class DaemonThreadResolver(AbstractResolver):
    """Resolves names with the system's resolver, each in its own daemon thread.

    The default executor of an event loop has few threads, serves other work too, and is joined when the
    program ends. Names without an answer would block that work and delay the exit.
    """

    def __init__(self, *, max_lookups: int = 256) -> None:
        """``max_lookups`` limits concurrent lookups, including abandoned ones that are still running."""
        self._lookup_threads = _LookupThreads(max_lookups)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host. Raise OSError."""
        # ThreadedResolver uses only getaddrinfo and getnameinfo of its loop.
        resolver = ThreadedResolver(cast("asyncio.AbstractEventLoop", self._lookup_threads))
        return await resolver.resolve(host, port, family)

    async def close(self) -> None:
        """Do nothing: no resources are held."""


class _LookupThreads:
    """The two lookup methods of an event loop, run in daemon threads."""

    def __init__(self, max_lookups: int) -> None:
        self._free_slots = threading.BoundedSemaphore(max_lookups)

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        return await self._run_lookup(lambda: socket.getaddrinfo(host, port, **options))

    async def getnameinfo(self, address: tuple[str, int], flags: int = 0) -> tuple[str, str]:
        return await self._run_lookup(lambda: socket.getnameinfo(address, flags))

    async def _run_lookup(self, lookup: Callable[[], Any]) -> Any:
        if not self._free_slots.acquire(blocking=False):
            raise socket.gaierror(socket.EAI_AGAIN, "too many DNS lookups are running")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                settle, outcome = future.set_result, lookup()
            except (OSError, ValueError) as error:
                settle, outcome = future.set_exception, error
            finally:
                # Released when the thread ends and not when the caller gives up: an abandoned lookup still
                # occupies a thread.
                self._free_slots.release()
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(_settle_future, future, settle, outcome)

        threading.Thread(target=run, name="toolyard:name", daemon=True).start()
        return await future


def _settle_future(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    # The future is done if the caller has been cancelled.
    if not future.done():
        settle(outcome)
