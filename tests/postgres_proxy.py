"""A TCP proxy in front of PostgreSQL that can stop forwarding without closing connections.

Its clients see a frozen server, which accepts connections and never answers. Other tests are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit


class FreezableProxy:
    """Forwards connections unless it is frozen."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._links: set[asyncio.Task[None]] = set()
        self.freeze_on: bytes | None = None
        """Freeze as soon as a client sends these bytes."""

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        try:
            server_streams, ours = await asyncio.open_unix_connection(self._socket_path)
            with contextlib.closing(ours), contextlib.suppress(OSError, asyncio.CancelledError):
                pumps = [
                    asyncio.create_task(self._pump(reader, ours)),
                    asyncio.create_task(self._pump(server_streams, writer)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            writer.close()
            self._links.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            if self.freeze_on is not None and self.freeze_on in data:
                self.freeze()
            await self._thawed.wait()
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        for task in list(self._links):
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)


@contextlib.asynccontextmanager
async def run_freezable_proxy(postgres_url: str) -> AsyncIterator[tuple[FreezableProxy, str]]:
    """Run a proxy; return it and the database URL that leads through it."""
    parts = urlsplit(postgres_url)
    folder = parse_qs(parts.query)["host"][0]
    proxy = FreezableProxy(f"{folder}/.s.PGSQL.5432")
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = parts.netloc.partition("@")[0] or "postgres"
    try:
        yield proxy, f"postgresql://{user}@127.0.0.1:{port}{parts.path}?sslmode=disable"
    finally:
        server.close()
        await proxy.close()
