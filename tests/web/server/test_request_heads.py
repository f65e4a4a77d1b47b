"""Heads of requests that never end, by time or by length, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from toolyard.web.http_server.http_protocol import MAX_REQUEST_HEAD_BYTES, BoundedHttpProtocol
from toolyard.web.http_server.socket import open_listener


class Impatient(BoundedHttpProtocol):
    first_byte_seconds = 0.3
    head_seconds = 0.3


async def _app(scope: Any, receive: Any, send: Any) -> None:
    message: dict[str, Any] = {"more_body": True}
    reply_bytes = b""
    while message.get("more_body"):
        message = await receive()
        reply_bytes += message.get("body", b"")
    body = b"%d ok" % len(reply_bytes)
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = open_listener("127.0.0.1", 0)
    config = uvicorn.Config(_app, http=Impatient, lifespan="off", log_config=None, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener.socket]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.socket.getsockname()[1]
    server.should_exit = True
    await serving


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("head_start", [b"", b"G", b"\r\n", HEAD, HEAD + b"X: y"])
async def test_a_head_that_does_not_end_ends_the_connection(port: int, head_start: bytes) -> None:
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head_start)
    # What comes after its end, from a machine that did something else meanwhile, is refused.
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 30) == b""
    assert time.monotonic() - start > 0.2
    writer.close()


async def test_dripping_does_not_help(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    task = asyncio.ensure_future(reader.read())
    writer.write(HEAD)
    for number in range(200):
        if task.done():
            break
        writer.write(f"X-{number}: y\r\n".encode())
        await asyncio.sleep(0.02)
    assert task.done()
    assert number < 100
    writer.close()


async def test_a_head_that_is_too_long_ends_the_connection(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    task, sent_count = asyncio.ensure_future(reader.read()), 0
    writer.write(HEAD)
    try:
        while not task.done() and sent_count < MAX_REQUEST_HEAD_BYTES * 50:
            writer.write(b"X: " + b"y" * 8000 + b"\r\n")
            sent_count += 8005
            await writer.drain()
            await asyncio.sleep(0)
        await asyncio.wait_for(task, 30)
    except ConnectionError:
        pass
    assert sent_count < MAX_REQUEST_HEAD_BYTES * 50
    writer.close()


async def test_a_slow_body_and_a_pause_between_requests_do_not_count_as_a_slow_head(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n")
        for _ in range(4):
            await asyncio.sleep(0.15)
            writer.write(b"x")
        answer = await asyncio.wait_for(reader.readuntil(b"ok"), 30)
        assert b" 200 " in answer
        await asyncio.sleep(0.5)
    # A large body in the same breath as its head is not a large head.
    body = b"x" * (MAX_REQUEST_HEAD_BYTES * 2)
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"ok"), 30)
    writer.close()


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade"])
async def test_an_offer_of_another_protocol_is_not_taken(port: int, name: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    offer = b"Connection: Upgrade, HTTP2-Settings\r\n%b: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n" % name
    for _ in range(2):
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\n" + offer + b"Content-Length: 5\r\n\r\nwords")
        answer = await asyncio.wait_for(reader.readuntil(b"ok"), 30)
        assert b" 200 " in answer
        assert answer.endswith(b"\r\n5 ok")
    writer.close()


async def test_a_connection_queues_few_pipelined_requests(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write((HEAD + b"\r\n") * 1_000)
    answers = await asyncio.wait_for(reader.read(), 30)
    assert answers.count(b" 200 OK") <= BoundedHttpProtocol.max_pipelined + 1
    writer.close()


async def test_a_head_with_too_many_headers_is_refused(port: int) -> None:
    for count, status in (
        (BoundedHttpProtocol.max_headers - 1, b"200"),
        (BoundedHttpProtocol.max_headers, b"400"),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"X: y\r\n" * count + b"\r\n")
        assert (await asyncio.wait_for(reader.readline(), 30)).split()[1] == status
        writer.close()
