"""A bare client of HTTP with SSE, as of 2024-11-05: it posts, and hears the answers on a stream."""

from __future__ import annotations

import asyncio

from harness.raw_http_client import INITIALIZED_NOTIFICATION, LIMIT, Line

__all__ = ["StreamLine"]


class StreamLine(Line):
    """A connection to post on, and a stream beside it, whose end is the end of the session.

    A gateway may send each client the answers of all: one's own is known by its id alone.
    """

    async def begin(self) -> None:
        self.heard, self.held = await asyncio.open_connection("127.0.0.1", self.peer.port, limit=LIMIT)
        self.held.write(self.peer.listening())
        await self.heard.readuntil(b"event: endpoint")
        await self.heard.readuntil(b"data: ")
        self.session = (await self.heard.readline()).decode().strip()
        await self.ask(self.peer.request(self.peer.hello(self.number), self.session))
        await self.post(self.peer.request(INITIALIZED_NOTIFICATION, self.session))

    async def ask(self, request: bytes) -> bytes:
        await self.post(request)
        # To look at each message of the others would cost more than to search all for the one.
        await self.heard.readuntil(b'"id":%d,' % self.number)
        body = await self.heard.readline()
        if body.startswith(b'"error"'):
            raise RuntimeError(body.decode()[:300])
        return body

    async def end(self) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        self.held.close()
