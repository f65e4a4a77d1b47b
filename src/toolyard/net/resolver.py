"""Looking names up, without anybody having to wait for a name server that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

__all__ = ["DaemonThreadResolver"]

_MAX_CONCURRENT_LOOKUPS = 256
"""Lookups at the same time, those included that nobody waits for any more."""


class DaemonThreadResolver(AbstractResolver):
    """Looks names up as the system does, each in a thread of its own that ends with the process.

    The threads of an event loop are few, they do other work too, and a program waits for them when it ends:
    names that nobody answers for would hold up everything else, and its end.
    """

    def __init__(self) -> None:
        self._lookup_threads = _LookupThreads()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises OSError."""
        # All that it asks of a loop is these lookups.
        resolver = ThreadedResolver(cast("asyncio.AbstractEventLoop", self._lookup_threads))
        return await resolver.resolve(host, port, family)

    async def close(self) -> None:
        """Nothing is kept."""


class _LookupThreads:
    """The lookups of an event loop."""

    def __init__(self) -> None:
        self._free_slots = threading.BoundedSemaphore(_MAX_CONCURRENT_LOOKUPS)

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        return await self._run_lookup(lambda: socket.getaddrinfo(host, port, **options))

    async def getnameinfo(self, address: tuple[str, int], flags: int = 0) -> tuple[str, str]:
        return await self._run_lookup(lambda: socket.getnameinfo(address, flags))

    async def _run_lookup(self, lookup: Callable[[], Any]) -> Any:
        if not self._free_slots.acquire(blocking=False):
            raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                tell, outcome = found.set_result, lookup()
            except (OSError, ValueError) as error:
                tell, outcome = found.set_exception, error
            finally:
                self._free_slots.release()
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(_settle_future, found, tell, outcome)

        threading.Thread(target=run, name="toolyard:name", daemon=True).start()
        return await found


def _settle_future(found: asyncio.Future[Any], tell: Callable[[Any], None], outcome: Any) -> None:
    if not found.done():
        tell(outcome)
