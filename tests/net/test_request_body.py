"""Requests whose bodies are large, and callers that stop waiting."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
import trustme
from tests.net.raw_server import (
    OK,
    RawConnection,
    ask,
    get,
    read_body,
    run_fixed_reply_server,
    run_raw_server,
    sockets,
)

from toolyard.net import AddressGuard, HttpProtocolError, OutboundHttp
from toolyard.net.http1.response import MAX_BUFFERED_BYTES

pytestmark = pytest.mark.usefixtures("nothing_left")
Until = Callable[..., Awaitable[None]]

LARGE = bytes(range(256)) * (20 << 12)
TOO_LARGE = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nless"


# Large bodies.


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server, and for those who trust it."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.fixture(params=["plain", "tls"])
def tls(
    request: pytest.FixtureRequest, net: OutboundHttp, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> ssl.SSLContext | None:
    """What the server of a test is given: with TLS, and without."""
    net.set_tls_context(contexts[1])
    return contexts[0] if request.param == "tls" else None


@pytest.mark.both_loops
async def test_a_large_body_reaches_a_server_that_reads_slowly(
    net: OutboundHttp, tls: ssl.SSLContext | None
) -> None:
    read: list[bytes] = []

    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        while sum(map(len, read)) < len(LARGE):
            read.append(await peer.reader.read(1 << 19))
            await asyncio.sleep(0)
        await peer.say(OK)
        await run_fixed_reply_server(OK)(peer)

    async with run_raw_server(serve_peer, tls=tls) as server:
        assert await read_body(await ask(net, server.url, "POST", {}, LARGE)) == b"hello"
        assert b"".join(read) == LARGE
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 1


@pytest.mark.both_loops
@pytest.mark.parametrize("late", [b"", TOO_LARGE[-2:]], ids=["at-once", "in-two"])
async def test_an_answer_before_all_was_sent_is_seen_and_ends_the_connection(
    net: OutboundHttp, tls: ssl.SSLContext | None, late: bytes
) -> None:
    answer_seen, gone = asyncio.Event(), asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        if peer is not server.peers[0]:
            await run_fixed_reply_server(OK)(peer)
        await peer.head()
        peer.writer.transport.pause_reading()
        # Until nothing more fits between the two, as a rule.
        for _ in range(200):
            await asyncio.sleep(0)
        await peer.say(TOO_LARGE.removesuffix(late))
        await answer_seen.wait()
        await peer.say(late)
        await gone.wait()

    async with run_raw_server(serve_peer, tls=tls) as server:
        answer = await ask(net, server.url, "POST", {}, LARGE)
        answer_seen.set()
        assert (answer.status, await read_body(answer)) == (413, b"less")
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2
        gone.set()


def socket_with_small_buffer(family: int, kind: int, proto: int) -> socket.socket:
    small_socket = socket.socket(family, kind, proto)
    small_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return small_socket


async def test_an_answer_before_a_small_body_has_left_ends_the_connection_too() -> None:
    loopback = (ipaddress.ip_network("127.0.0.0/8"),)
    net = OutboundHttp(AddressGuard(allow=loopback, socket_factory=socket_with_small_buffer))
    gone = asyncio.Event()

    async def fetch(*request: Any) -> tuple[int, bytes]:
        answer = await ask(net, server.url, *request, guarded=True)
        return answer.status, await read_body(answer)

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(OK)
        if peer is server.peers[0]:
            await peer.head()
            peer.writer.transport.pause_reading()
            await peer.say(TOO_LARGE)
            await gone.wait()

    async with run_raw_server(serve_peer) as server:
        assert await fetch() == (200, b"hello")
        extra_info = server.peers[0].writer.get_extra_info("socket")
        extra_info.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert await fetch("POST", {}, bytes(MAX_BUFFERED_BYTES)) == (413, b"less")
        assert await fetch() == (200, b"hello")
        assert len(server.peers) == 2
        gone.set()
    await net.close()


@pytest.mark.both_loops
async def test_a_server_that_answers_early_and_reads_on_is_not_asked_again_on_that_connection(
    net: OutboundHttp,
) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        if peer is server.peers[0]:
            await peer.head()
            await peer.reader.readexactly(1 << 18)
            await peer.say(TOO_LARGE)
            await peer.hung_up()
        await run_fixed_reply_server(OK)(peer)

    async with run_raw_server(serve_peer) as server:
        answer = await ask(net, server.url, "POST", {}, LARGE)
        assert (answer.status, await read_body(answer)) == (413, b"less")
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2


@pytest.mark.both_loops
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_server_that_ends_the_connection_while_a_body_is_sent_is_told(
    net: OutboundHttp, reset: bool
) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        if reset:
            peer.reset()

    async with run_raw_server(serve_peer) as server:
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await ask(net, server.url, "POST", {}, LARGE)
        assert len(server.heads) == 1


@pytest.mark.both_loops
async def test_a_server_that_will_say_no_more_and_does_not_read_is_not_waited_for(net: OutboundHttp) -> None:
    gone = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        peer.writer.transport.pause_reading()
        for _ in range(200):
            await asyncio.sleep(0)
        peer.writer.write_eof()
        await gone.wait()

    async with run_raw_server(serve_peer) as server:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(net, server.url, "POST", {}, LARGE)
        gone.set()


@pytest.mark.both_loops
async def test_invalid_http_ends_the_sending_of_a_body(net: OutboundHttp) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        await peer.say(b"what is that?")
        await peer.hung_up()

    async with run_raw_server(serve_peer) as server:
        with pytest.raises(HttpProtocolError):
            await ask(net, server.url, "POST", {}, LARGE)


# Callers that stop waiting.

STAGES: dict[str, tuple[bytes, bytes | None]] = {
    "writing": (b"", LARGE),
    "before-the-head": (b"", b"{}"),
    "in-the-head": (b"HTTP/1.1 200 OK\r\nX: y", b"{}"),
    "in-the-body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", b"{}"),
    "in-a-chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhel", b"{}"),
}


@pytest.mark.both_loops
@pytest.mark.parametrize("stage", STAGES)
async def test_a_cancelled_caller_leaves_nothing_and_affects_no_other(
    net: OutboundHttp, tls: ssl.SSLContext | None, stage: str
) -> None:
    reply_stage, body = STAGES[stage]
    arrived, left, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        if b"X-Other" in await peer.head():
            await left.wait()
            await peer.say(OK)
            await run_fixed_reply_server(OK)(peer)
        if len(body or b"") < 100:
            await peer.reader.readexactly(len(body or b""))
        await peer.say(reply_stage)
        arrived.set()
        await left.wait()
        await peer.hung_up()
        gone.set()

    async def whole() -> None:
        answer = await ask(net, server.url, "POST", {}, body)
        try:
            await read_body(answer)
        finally:
            answer.close()

    async with run_raw_server(serve_peer, tls=tls) as server, asyncio.timeout(30):
        other = asyncio.create_task(ask(net, server.url, "GET", {"X-Other": "1"}))
        going = asyncio.create_task(whole())
        await arrived.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        left.set()
        await gone.wait()
        assert await read_body(await other) == b"hello"
        assert await read_body(await ask(net, server.url, "GET", {"X-Other": "1"})) == b"hello"
        assert len(server.peers) == 2
    # Whatever nobody looked at would be told when it is thrown away.
    gc.collect()


@pytest.mark.both_loops
async def test_a_caller_that_goes_does_not_wait_for_a_server_that_does_not_read(
    net: OutboundHttp, wait_until: Until
) -> None:
    arrived, done = asyncio.Event(), asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        peer.writer.transport.pause_reading()
        arrived.set()
        await done.wait()

    async with run_raw_server(serve_peer) as server, asyncio.timeout(60):
        going = asyncio.create_task(ask(net, server.url, "POST", {}, LARGE))
        await arrived.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        open_then = sockets()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await wait_until(lambda: sockets() == open_then - 1)
        done.set()


@pytest.mark.both_loops
async def test_a_caller_that_goes_while_a_connection_is_made_leaves_nothing(net: OutboundHttp) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        # The start of TLS, to which nobody answers.
        assert await peer.reader.read(1) == b"\x16"
        arrived.set()
        await peer.hung_up()
        gone.set()

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        going = asyncio.create_task(ask(net, server.url.with_scheme("https")))
        await arrived.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await gone.wait()
        arrived.clear()
        # Whoever closes everything does not wait for it either.
        going = asyncio.create_task(ask(net, server.url.with_scheme("https")))
        await arrived.wait()
        await net.close()
        going.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await going
    gc.collect()
