"""Connections: when they are used again, when they are left, and what becomes of requests on them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.net.raw_server import (
    OK,
    RawConnection,
    ask,
    get,
    read_body,
    run_fixed_reply_server,
    run_raw_server,
)

from toolyard.net import HttpProtocolError, OutboundHttp

pytestmark = pytest.mark.usefixtures("nothing_left")
Until = Callable[..., Awaitable[None]]


# Used again.


@pytest.mark.both_loops
async def test_requests_after_another_use_one_connection(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        for method in ("GET", "POST", "DELETE", "POST", "GET"):
            answer = await ask(net, server.url, method, {}, b"{}" if method == "POST" else None)
            assert await read_body(answer) == b"hello"
        assert (len(server.heads), len(server.peers)) == (5, 1)


@pytest.mark.both_loops
async def test_a_connection_of_the_session_is_taken_over(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        async with asyncio.timeout(30), net.session(guarded=False).get(server.url) as response:
            assert await response.read() == b"hello"
        for _ in range(2):
            assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 1
        async with asyncio.timeout(30), net.session(guarded=False).get(server.url) as response:
            assert await response.read() == b"hello"
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2


@pytest.mark.both_loops
async def test_requests_at_the_same_time_have_a_connection_each(net: OutboundHttp) -> None:
    everyone = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        while True:
            await peer.asked()
            if len(server.heads) >= 100:
                everyone.set()
            await everyone.wait()
            await peer.say(OK)

    async with run_raw_server(serve_peer) as server:
        assert await asyncio.gather(*(get(net, server.url) for _ in range(100))) == [b"hello"] * 100
        assert len(server.peers) == 100
        for _ in range(100):
            await get(net, server.url)
        assert len(server.peers) == 100


async def test_origins_and_credentials_share_no_connections(net: OutboundHttp) -> None:
    async with (
        run_raw_server(run_fixed_reply_server(OK)) as one,
        run_raw_server(run_fixed_reply_server(OK)) as two,
    ):
        for url in (
            one.url,
            two.url,
            one.url.with_user("me").with_password("x"),
            one.url.with_host("localhost"),
        ):
            assert await get(net, url) == b"hello"
        assert (len(one.peers), len(two.peers)) == (3, 1)
        assert net.origin_pool(one.url, guarded=False) is net.origin_pool(one.url / "other", guarded=False)
        assert net.origin_pool(one.url, guarded=True) is not net.origin_pool(one.url, guarded=False)


@asynccontextmanager
async def open_net(keep_alive_seconds: float) -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp(keep_alive_seconds=keep_alive_seconds)
    yield net
    await net.close()


async def test_a_connection_that_waited_too_long_is_not_used() -> None:
    async with (
        open_net(1000.0) as net,
        run_raw_server(run_fixed_reply_server(OK)) as server,
        asyncio.timeout(30),
    ):
        await get(net, server.url)
        net.origin_pool(server.url, guarded=False).keep_alive_seconds = 0.0
        await get(net, server.url)
        assert len(server.peers) == 2
        assert await server.peers[0].reader.read() == b""


async def test_unused_connections_are_closed(wait_until: Until) -> None:
    async with open_net(0.05) as net, run_raw_server(run_fixed_reply_server(OK)) as server:
        origin = net.origin_pool(server.url, guarded=False)
        for _ in range(2):
            peer_count = len(server.peers)
            await asyncio.gather(*(get(net, server.url) for _ in range(3)))
            assert len(server.peers) > peer_count
            await wait_until(lambda: all(peer.reader.at_eof() for peer in server.peers))
        await wait_until(lambda: not origin.idle_count)


# Closed by the server.


def closing_the_kept() -> Callable[[RawConnection], Awaitable[None]]:
    """Answers the first request of a connection, and ends it when the second is there."""

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(OK)
        await peer.asked()

    return serve_peer


@pytest.mark.both_loops
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_idempotent_requests_are_repeated_when_a_kept_connection_ends(
    net: OutboundHttp, method: str
) -> None:
    async with run_raw_server(closing_the_kept()) as server:
        await asyncio.gather(*(get(net, server.url) for _ in range(3)))
        peer_count = len(server.peers)
        assert await read_body(await ask(net, server.url, method)) == b"hello"
        # Every kept one was tried, and then a fresh one.
        assert (len(server.heads), len(server.peers)) == (3 + peer_count + 1, peer_count + 1)


@pytest.mark.both_loops
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_other_requests_are_sent_once(net: OutboundHttp, reset: bool) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(OK)
        await peer.asked()
        if reset:
            peer.reset()

    async with run_raw_server(serve_peer) as server:
        await get(net, server.url)
        with pytest.raises(aiohttp.ClientOSError if reset else aiohttp.ServerDisconnectedError):
            await ask(net, server.url, "POST", {}, b"{}")
        assert (len(server.heads), len(server.peers)) == (2, 1)
        assert await get(net, server.url) == b"hello"


async def test_an_end_that_the_loop_has_not_seen_yet_is_seen_before_anything_is_sent(
    net: OutboundHttp,
) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        await get(net, server.url)
        server.peers[0].writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        # Nothing ran in between.
        assert await read_body(await ask(net, server.url, "POST", {}, b"{}")) == b"hello"
        assert (len(server.heads), len(server.peers)) == (2, 2)


# More than was asked for.

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"


@pytest.mark.both_loops
@pytest.mark.parametrize("more", [EVIL, b"garbage", b"\r\n\r\nHTTP/1.1 408 Timeout\r\n\r\n"])
async def test_a_second_answer_to_one_request_is_dropped(net: OutboundHttp, more: bytes) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say((OK + more) if peer is server.peers[0] else OK)
        await peer.hung_up()

    async with run_raw_server(serve_peer) as server:
        assert await get(net, server.url) == b"hello"
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2


@pytest.mark.both_loops
async def test_bytes_on_an_idle_connection_are_dropped(net: OutboundHttp, wait_until: Until) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        await get(net, server.url)
        await server.peers[0].say(EVIL)
        await wait_until(server.peers[0].reader.at_eof)
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2


async def test_bytes_still_unread_by_the_loop_do_not_answer_the_next_request(
    net: OutboundHttp,
) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        await get(net, server.url)
        server.peers[0].writer.write(EVIL)
        # Nothing ran in between.
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 2


@pytest.mark.both_loops
async def test_a_server_that_speaks_first_is_not_understood(net: OutboundHttp) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.say(b"220 mail.example ESMTP\r\n")
        await peer.hung_up()

    async with run_raw_server(serve_peer) as server:
        with pytest.raises(HttpProtocolError):
            await get(net, server.url)


# Closed by us.


@pytest.mark.both_loops
async def test_a_closed_net_has_no_connections_and_can_be_used_again(
    net: OutboundHttp, wait_until: Until
) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        origin = net.origin_pool(server.url, guarded=False)
        for round in range(1, 4):
            assert await read_body(await origin.request("GET", server.url, {})) == b"hello"
            async with asyncio.timeout(30):
                await net.close()
            await wait_until(lambda: all(peer.reader.at_eof() for peer in server.peers))
            assert len(server.peers) == round


HEADS = {
    "before-the-head": (b"", aiohttp.ClientConnectionError),
    "in-the-body": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel", aiohttp.ClientPayloadError),
    "in-a-body-until-the-end": (b"HTTP/1.1 200 OK\r\n\r\nhel", aiohttp.ClientPayloadError),
}


@pytest.mark.both_loops
@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "kept"])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("when", HEADS)
async def test_closing_ends_running_requests_without_retries(
    net: OutboundHttp, kept: bool, method: str, when: str
) -> None:
    response_bytes, error = HEADS[when]
    arrived = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        if kept:
            await peer.asked()
            await peer.say(OK)
        await peer.asked()
        await peer.say(response_bytes)
        arrived.set()
        await peer.hung_up()

    async def whole() -> bytes:
        return await read_body(await ask(net, server.url, method, {}, None))

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        if kept:
            await get(net, server.url)
        session = net.session(guarded=False)
        going = asyncio.create_task(whole())
        await arrived.wait()
        await net.close()
        with pytest.raises(error):
            await going
        assert (len(server.heads), len(server.peers)) == (1 + kept, 1)
        assert session.closed


@pytest.mark.both_loops
async def test_closing_a_net_does_not_wait_for_a_server_that_does_not_read(net: OutboundHttp) -> None:
    arrived, done = asyncio.Event(), asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        peer.writer.transport.pause_reading()
        arrived.set()
        await done.wait()

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        going = asyncio.create_task(ask(net, server.url, "POST", {}, bytes(20 << 20)))
        await arrived.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        await net.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await going
        done.set()
