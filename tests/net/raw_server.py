"""A server on loopback that says exactly the bytes that a test wants, when it wants."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from yarl import URL

from toolyard.net import HttpResponse, OutboundHttp

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class RawConnection:
    """The server's end of one connection."""

    def __init__(
        self, server: RawTcpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """The head of the next request."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        self._server.heads.append(head)
        return head

    async def asked(self) -> bytes:
        """The body of the next request, once all of it is there."""
        length = _LENGTH.search(await self.head())
        return await self.reader.readexactly(int(length[1]) if length else 0)

    async def say(self, *pieces: bytes) -> None:
        """Each piece once the one before it was read, so that they come one by one."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            for _ in range(3):
                await asyncio.sleep(0)

    async def hung_up(self) -> None:
        """Wait until the other side is gone."""
        with suppress(OSError):
            while await self.reader.read(1 << 20):
                pass

    def reset(self) -> None:
        """End the connection as one that broke does."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()


Talk = Callable[[RawConnection], Awaitable[None]]


@dataclass
class RawTcpServer:
    """Where it listens, who came, and what was asked."""

    url: URL = field(default_factory=URL)
    peers: list[RawConnection] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def run_raw_server(
    serve_peer: Talk, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[RawTcpServer]:
    """A server that talks so on each connection, which ends with what it says. Its own failures are told."""
    raw, talks, failures = RawTcpServer(), set[asyncio.Task[None]](), list[BaseException]()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        talks.add(me)
        raw.peers.append(RawConnection(raw, reader, writer))
        try:
            await serve_peer(raw.peers[-1])
        except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError):
            pass
        except Exception as failure:
            failures.append(failure)
        finally:
            writer.close()

    server = await asyncio.start_server(serve_connection, host, 0, ssl=tls, limit=1 << 20)
    try:
        port = server.sockets[0].getsockname()[1]
        raw.url = URL.build(scheme="https" if tls else "http", host=host, port=port, path="/mcp")
        yield raw
    finally:
        server.close()
        for each in talks:
            each.cancel()
        await asyncio.gather(*talks)
        for peer in raw.peers:
            peer.writer.transport.abort()
    assert failures == []


def sockets() -> int:
    """How many this process has open."""
    byte_count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            byte_count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return byte_count


def run_fixed_reply_server(*pieces: bytes) -> Talk:
    """The same answer to every request; its connections stay open."""

    async def serve_peer(peer: RawConnection) -> None:
        while True:
            await peer.asked()
            await peer.say(*pieces)

    return serve_peer


def run_closing_server(*pieces: bytes) -> Talk:
    """An answer after which the connection ends."""

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(*pieces)

    return serve_peer


async def ask(
    net: OutboundHttp,
    url: URL,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    *,
    guarded: bool = False,
) -> HttpResponse:
    async with asyncio.timeout(30):
        return await net.origin_pool(url, guarded=guarded).request(method, url, headers or {}, body)


async def read_body(answer: HttpResponse) -> bytes:
    """The whole body."""
    parts: list[bytes] = []
    async with asyncio.timeout(30):
        while piece := await answer.read_chunk():
            parts.append(piece)
    return b"".join(parts)


async def get(net: OutboundHttp, url: URL) -> bytes:
    """The body of what is answered to a GET."""
    return await read_body(await ask(net, url))
