"""What a server may say to one request, and what is understood."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from tests.net.raw_server import (
    OK,
    RawConnection,
    ask,
    get,
    read_body,
    run_closing_server,
    run_fixed_reply_server,
    run_raw_server,
)

from toolyard.net import HttpProtocolError, OutboundHttp

pytestmark = pytest.mark.usefixtures("nothing_left")

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HELLO = b"3;word=x\r\nhel\r\n2\r\nlo\r\n0\r\n"
LENGTH = b"Content-Length: 5\r\n\r\nhello"


# Answers.

KEPT_CONNECTIONS: dict[str, tuple[bytes, int, str, bytes]] = {
    "length": (OK, 200, "OK", b"hello"),
    "empty": (b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202, "Accepted", b""),
    "chunked": (CHUNKED_HEAD + HELLO + b"\r\n", 200, "OK", b"hello"),
    "trailers": (CHUNKED_HEAD + HELLO + b"X-Late: 1\r\nX-Later: 2\r\n\r\n", 200, "OK", b"hello"),
    "no-content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, "No Content", b""),
    "not-modified": (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", 304, "Not Modified", b""),
    "no-reason": (b"HTTP/1.1 200\r\n" + LENGTH, 200, "", b"hello"),
    "empty-reason": (b"HTTP/1.1 200 \r\n" + LENGTH, 200, "", b"hello"),
    "long-reason": (
        b"HTTP/1.1 404 Not, fri\xc3\xabnd, Found\r\n" + LENGTH,
        404,
        "Not, friënd, Found",
        b"hello",
    ),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, "OK", b"hello"),
    "continue-no-reason": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\n" + LENGTH, 200, "", b"hello"),
    "hints": (
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-One: early\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK,
        200,
        "OK",
        b"hello",
    ),
    "kept-1.0": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + LENGTH, 200, "OK", b"hello"),
    "redirect": (b"HTTP/1.1 307 There\r\nLocation: /there\r\n" + LENGTH, 307, "There", b"hello"),
    "unknown": (b"HTTP/1.1 799 Whatever\r\n" + LENGTH, 799, "Whatever", b"hello"),
}
ENDED_CONNECTIONS: dict[str, tuple[bytes, int, str, bytes]] = {
    "until-the-end": (b"HTTP/1.1 200 OK\r\n\r\nhello", 200, "OK", b"hello"),
    "nothing-until-the-end": (b"HTTP/1.1 200 OK\r\n\r\n", 200, "OK", b""),
    "close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + LENGTH, 200, "OK", b"hello"),
    "close-chunked": (
        b"HTTP/1.1 500 No\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + HELLO + b"\r\n",
        500,
        "No",
        b"hello",
    ),
    "1.0": (b"HTTP/1.0 200 OK\r\n" + LENGTH, 200, "OK", b"hello"),
    "1.0-until-the-end": (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, "OK", b"hello"),
}


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", KEPT_CONNECTIONS)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytewise"])
async def test_an_answer_with_an_end_of_its_own_leaves_its_connection_usable(
    net: OutboundHttp, kind: str, split: bool
) -> None:
    response_bytes, status, reason, body = KEPT_CONNECTIONS[kind]
    async with run_raw_server(
        run_fixed_reply_server(*(bytewise(response_bytes) if split else [response_bytes]))
    ) as server:
        for _ in range(2):
            answer = await ask(net, server.url)
            assert (answer.status, answer.reason, await read_body(answer)) == (status, reason, body)
            assert answer.is_finished
            assert not {"X-Late", "X-Later", "X-One", "Link"} & set(answer.headers)
        assert (len(server.heads), len(server.peers)) == (2, 1)


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", ENDED_CONNECTIONS)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytewise"])
async def test_an_answer_that_ends_its_connection_is_the_last_on_it(
    net: OutboundHttp, kind: str, split: bool
) -> None:
    response_bytes, status, reason, body = ENDED_CONNECTIONS[kind]
    async with run_raw_server(
        run_closing_server(*(bytewise(response_bytes) if split else [response_bytes]))
    ) as server:
        for _ in range(2):
            answer = await ask(net, server.url)
            assert (answer.status, answer.reason, await read_body(answer)) == (status, reason, body)
        assert (len(server.heads), len(server.peers)) == (2, 2)


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", ["close", "1.0"])
async def test_a_server_that_says_it_closes_and_does_not_is_left(net: OutboundHttp, kind: str) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(ENDED_CONNECTIONS[kind][0])
        await peer.hung_up()

    async with run_raw_server(serve_peer) as server:
        for _ in range(2):
            assert await get(net, server.url) == b"hello"
        assert (len(server.heads), len(server.peers)) == (2, 2)


async def test_headers_are_kept_in_their_order_and_number_and_found_in_any_case(net: OutboundHttp) -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nx-word:  \tgr\xc3\xbc\xc3\x9fe\xff \r\nSET-COOKIE: b\r\n"
    async with run_raw_server(run_fixed_reply_server(head + b"X-None:\r\n" + LENGTH)) as server:
        answer = await ask(net, server.url)
        assert answer.headers.getall("set-cookie") == ["a", "b"]
        assert answer.headers["X-Word"] == "grüße\udcff"
        assert answer.headers["x-none"] == ""
        assert answer.content_length == 5
        answer.close()


@pytest.mark.parametrize(
    ("response_head", "understood"),
    [
        ("application/json", "application/json"),
        ("Application/JSON; charset=utf-8", "application/json"),
        ("text/event-stream;charset=utf-8", "text/event-stream"),
        ("", ""),
    ],
)
async def test_the_kind_of_a_body_has_no_parameters(
    net: OutboundHttp, response_head: str, understood: str
) -> None:
    async with run_raw_server(
        run_fixed_reply_server(f"HTTP/1.1 200 OK\r\nContent-Type: {response_head}\r\n".encode() + LENGTH)
    ) as server:
        answer = await ask(net, server.url)
        assert answer.content_type == understood
        answer.close()


async def test_a_length_with_very_many_zeros_is_a_length(net: OutboundHttp) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\n"
    async with run_raw_server(run_fixed_reply_server(head + b"hello")) as server:
        answer = await ask(net, server.url)
        assert answer.content_length in (5, None)
        assert await read_body(answer) == b"hello"


# What is no answer.

NOT_HTTP: dict[str, bytes] = {
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "page": b"<html>what do you want?</html>",
    "zeros": bytes(1000),
    "request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "old": b"ICY 200 OK\r\n\r\n",
    "no-status": b"HTTP/1.1 OK\r\n\r\n",
    "status-zero": b"HTTP/1.1 000 Nothing\r\n" + LENGTH,
    "status-low": b"HTTP/1.1 099 Low\r\n" + LENGTH,
    "status-long": b"HTTP/1.1 2000 Long\r\n" + LENGTH,
    "other-protocol": b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
    "other-protocol-unnamed": b"HTTP/1.1 101 Switching\r\n\r\n",
    "length-and-chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    + HELLO,
    "chunked-and-length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
    + HELLO,
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nhello",
    "list-of-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\nhello",
    "negative-length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    "word-for-length": b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
    "too-long": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhello",
    "bare-line-break": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "break-in-header": b"HTTP/1.1 200 OK\r\nX: a\rb\r\n" + LENGTH,
    "nul-in-header": b"HTTP/1.1 200 OK\r\nX: a\0b\r\n" + LENGTH,
    "no-name": b"HTTP/1.1 200 OK\r\n: x\r\n" + LENGTH,
    "space-in-name": b"HTTP/1.1 200 OK\r\nContent Length: 5\r\n" + LENGTH,
    "unknown-packing": b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n" + LENGTH,
}


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", NOT_HTTP)
async def test_invalid_http_is_reported_and_its_connection_closed(net: OutboundHttp, kind: str) -> None:
    gone = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(NOT_HTTP[kind])
        await peer.hung_up()
        gone.set()

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        with pytest.raises(HttpProtocolError):
            await ask(net, server.url, "POST", {}, b"{}")
        await gone.wait()
        assert len(server.heads) == 1


@pytest.mark.both_loops
@pytest.mark.parametrize("rest", [b"zz\r\n", b"-1\r\n", b"2\r\nhello\r\n", b"ffffffffffffffffff\r\n"])
async def test_an_invalid_chunk_is_reported_after_the_earlier_ones(net: OutboundHttp, rest: bytes) -> None:
    async with run_raw_server(run_fixed_reply_server(CHUNKED_HEAD + b"5\r\nhello\r\n", rest)) as server:
        answer = await ask(net, server.url)
        pieces: list[bytes] = []
        with pytest.raises(HttpProtocolError):
            async with asyncio.timeout(30):
                while piece := await answer.read_chunk():
                    pieces.append(piece)
        assert b"".join(pieces).startswith(b"hello")
        assert not answer.is_finished


ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "line": (b"HTTP/1.1 200 ", b"O" * 4096),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 500),
    "interim-answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "empty-lines": (b"", b"\r\n" * 1000),
    "chunk-extension": (CHUNKED_HEAD + b"5;", b"x" * 4096),
    "trailer": (CHUNKED_HEAD + b"0\r\nX: ", b"x" * 4096),
    "trailers": (CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n", b"X: y\r\n" * 500),
}


@pytest.mark.both_loops
@pytest.mark.parametrize("kind", ENDLESS)
async def test_an_endless_response_without_a_body_is_cut_off(net: OutboundHttp, kind: str) -> None:
    first, again = ENDLESS[kind]
    header_size = 0

    async def serve_peer(peer: RawConnection) -> None:
        nonlocal header_size
        await peer.asked()
        await peer.say(first)
        while not peer.writer.transport.is_closing():
            await peer.say(again)
            header_size += len(again)

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        with pytest.raises(HttpProtocolError, match="too long"):
            await read_body(await ask(net, server.url))
        # What the sockets of both sides hold is on its way before anybody can object.
    assert header_size < 16_000_000


# Connections that end too soon.


async def closes(peer: RawConnection) -> None:
    peer.writer.close()


async def resets(peer: RawConnection) -> None:
    peer.reset()


@pytest.mark.both_loops
@pytest.mark.parametrize("end", [closes, resets])
@pytest.mark.parametrize(
    "response_bytes",
    [
        OK[:-1],
        *(CHUNKED_HEAD + more for more in (b"", b"5\r\nhel", b"5\r\nhello\r\n", b"0\r\n", b"0\r\nX: y")),
    ],
)
async def test_a_body_that_breaks_off_is_told(
    net: OutboundHttp, response_bytes: bytes, end: Callable[[RawConnection], Awaitable[None]]
) -> None:
    read = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(response_bytes)
        await read.wait()
        await end(peer)

    async with run_raw_server(serve_peer) as server:
        answer = await ask(net, server.url)
        read.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_body(answer)
        assert not answer.is_finished


@pytest.mark.both_loops
async def test_a_body_until_the_end_that_is_reset_is_not_complete(net: OutboundHttp) -> None:
    read = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\nhel")
        await read.wait()
        peer.reset()

    async with run_raw_server(serve_peer) as server:
        answer = await ask(net, server.url)
        assert await answer.read_chunk() == b"hel"
        read.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_body(answer)


@pytest.mark.both_loops
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "response_bytes", [b"", b"HTTP/1.1 20", b"HTTP/1.1 200 OK\r\nX: y\r\n", b"HTTP/1.1 100 -\r\n\r\n"]
)
@pytest.mark.parametrize("end", [closes, resets])
async def test_a_connection_that_ends_before_the_head_is_told_and_nothing_is_sent_again(
    net: OutboundHttp, method: str, response_bytes: bytes, end: Callable[[RawConnection], Awaitable[None]]
) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(response_bytes)
        await end(peer)

    error = aiohttp.ServerDisconnectedError if end is closes else aiohttp.ClientOSError
    async with run_raw_server(serve_peer) as server:
        with pytest.raises(error):
            await ask(net, server.url, method, {}, b"{}" if method == "POST" else None)
        assert len(server.heads) == 1
