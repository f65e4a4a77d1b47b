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

__all__ = ["Names"]

_MOST = 256
"""Lookups at the same time, those included that nobody waits for any more."""


class Names(AbstractResolver):
    """Looks names up as the system does, each in a thread of its own that ends with the process.

    The threads of an event loop are few, they do other work too, and a program waits for them when it ends:
    names that nobody answers for would hold up everything else, and its end.
    """

    def __init__(self) -> None:
        self._threads = _Threads()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host. Raises OSError."""
        # All that it asks of a loop is these lookups.
        resolver = ThreadedResolver(cast("asyncio.AbstractEventLoop", self._threads))
        return await resolver.resolve(host, port, family)

    async def close(self) -> None:
        """Nothing is kept."""


class _Threads:
    """The lookups of an event loop."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_MOST)

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        return await self._run(lambda: socket.getaddrinfo(host, port, **options))

    async def getnameinfo(self, address: tuple[str, int], flags: int = 0) -> tuple[str, str]:
        return await self._run(lambda: socket.getnameinfo(address, flags))

    async def _run(self, look: Callable[[], Any]) -> Any:
        if not self._free.acquire(blocking=False):
            raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            try:
                tell, outcome = found.set_result, look()
            except (OSError, ValueError) as error:
                tell, outcome = found.set_exception, error
            finally:
                self._free.release()
            with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(_settle, found, tell, outcome)

        threading.Thread(target=run, name="toolyard:name", daemon=True).start()
        return await found


def _settle(found: asyncio.Future[Any], tell: Callable[[Any], None], outcome: Any) -> None:
    if not found.done():
        tell(outcome)
