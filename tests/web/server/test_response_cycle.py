"""Writes of responses to the socket, and responses that do not keep to their head."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from toolyard.web.http_server.http_protocol import BoundedHttpProtocol
from toolyard.web.http_server.socket import open_listener

WRITES: list[bytes] = []
REQUEST = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class RecordingTransport:
    """A transport that records what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        WRITES.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class RecordingProtocol(BoundedHttpProtocol):
    def connection_made(self, transport: Any) -> None:
        # Pytest adds handlers to the logger, from which uvicorn concludes that there is an access log.
        self.access_log = False
        super().connection_made(RecordingTransport(transport))  # pyright: ignore[reportArgumentType]


async def _app(scope: Any, receive: Any, send: Any) -> None:
    headers = {
        "/short": [(b"content-length", b"5")],
        "/stream": [],
        "/invalid": [(b"content-length", b"5"), (b"x", b"a\r\nb: c")],
        "/too-long": [(b"content-length", b"4")],
        "/pieces": [(b"content-length", b"5")],
    }[scope["path"]]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] == "/stream":
        await asyncio.sleep(0.5)
    if scope["path"] == "/pieces":
        await send({"type": "http.response.body", "body": b"he", "more_body": True})
        await send({"type": "http.response.body", "body": b"llo"})
    else:
        await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    WRITES.clear()
    listener = open_listener("127.0.0.1", 0)
    config = uvicorn.Config(
        _app, http=RecordingProtocol, lifespan="off", log_config=None, access_log=False, timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener.socket]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.socket.getsockname()[1]
    server.should_exit = True
    await serving


async def request(port: int, path: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST % path)
    return reader, writer


async def test_a_short_response_is_written_at_once_and_its_connection_used_again(port: int) -> None:
    reader, writer = await request(port, b"/short")
    for _ in range(2):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert await asyncio.wait_for(reader.readexactly(5), 20) == b"hello"
        writer.write(REQUEST % b"/short")
    writer.close()
    assert len(WRITES) >= 2
    assert all(one.startswith(b"HTTP/1.1 200 OK\r\n") and one.endswith(b"hello") for one in WRITES)


async def test_a_body_in_pieces_follows_its_head(port: int) -> None:
    reader, writer = await request(port, b"/pieces")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert await asyncio.wait_for(reader.readexactly(5), 20) == b"hello"
    writer.close()


async def test_the_head_of_a_stream_does_not_wait_for_its_body(port: int) -> None:
    reader, writer = await request(port, b"/stream")
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert len(WRITES) == 1
    assert b"hello" not in WRITES[0]
    writer.close()


async def test_a_header_with_a_line_break_is_not_sent(port: int) -> None:
    reader, writer = await request(port, b"/invalid")
    assert await asyncio.wait_for(reader.read(1000), 20) == b""
    writer.close()
    assert b"b: c" not in b"".join(WRITES)


async def test_a_body_that_is_longer_than_declared_ends_the_connection(port: int) -> None:
    reader, writer = await request(port, b"/too-long")
    assert b"hello" not in await asyncio.wait_for(reader.read(), 20)
    writer.close()
