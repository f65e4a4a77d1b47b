"""The body of an answer: unpacked, no faster than it is read, and the same however it comes."""

from __future__ import annotations

import asyncio
import gzip
import os
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from toolyard.net.http1.response import MAX_BUFFERED_BYTES

pytestmark = pytest.mark.usefixtures("nothing_left")

WORDS = b"many words that are said again and again; " * 1000


def compress_reply(body: bytes, *, name: str = "gzip") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# Packed bodies.


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZip", "identity", ""])
async def test_a_packed_body_is_unpacked(net: OutboundHttp, name: str) -> None:
    response_body = gzip.compress(WORDS) if "zip" in name.lower() else WORDS
    async with run_raw_server(run_fixed_reply_server(compress_reply(response_body, name=name))) as server:
        answer = await ask(net, server.url)
        assert answer.content_length == (None if "zip" in name.lower() else len(WORDS))
        assert await read_body(answer) == WORDS
        assert await get(net, server.url) == WORDS
        assert len(server.peers) == 1


@pytest.mark.both_loops
@pytest.mark.parametrize(
    "members",
    [[b"one"], [b"one", b"two"], [b"", b"one", b"", b"two", b""], [WORDS, WORDS], [b""]],
    ids=["one", "two", "with-empty", "long", "empty"],
)
async def test_a_body_packed_in_several_parts_is_unpacked_whole(
    net: OutboundHttp, members: list[bytes]
) -> None:
    response_body = compress_reply(b"".join(gzip.compress(member) for member in members))
    async with (
        run_raw_server(run_fixed_reply_server(response_body)) as whole,
        run_raw_server(run_fixed_reply_server(*bytewise(response_body))) as split,
    ):
        for server in (whole, split):
            assert await get(net, server.url) == b"".join(members)


@pytest.mark.parametrize("head", ["200 OK\r\nContent-Length: 0", "204 No Content", "304 Not Modified"])
async def test_a_body_that_is_said_to_be_packed_may_be_none(net: OutboundHttp, head: str) -> None:
    async with run_raw_server(
        run_fixed_reply_server(f"HTTP/1.1 {head}\r\nContent-Encoding: gzip\r\n\r\n".encode())
    ) as server:
        assert await get(net, server.url) == b""
        assert await get(net, server.url) == b""
        assert len(server.peers) == 1


BADLY_COMPRESSED = {
    "plain": WORDS,
    "broken": gzip.compress(WORDS)[:40] + b"\xff" * 40 + gzip.compress(WORDS)[80:],
    "wrong-sum": gzip.compress(WORDS)[:-8] + b"\0" * 8,
    "cut": gzip.compress(WORDS)[:-20],
    "cut-in-sum": gzip.compress(WORDS)[:-1],
    "cut-in-head": gzip.compress(WORDS)[:5],
    "cut-in-second": gzip.compress(WORDS) + gzip.compress(WORDS)[:-20],
    "more-after-it": gzip.compress(WORDS) + b"and more",
    "deflate": zlib.compress(WORDS),
}


@pytest.mark.parametrize("kind", BADLY_COMPRESSED)
async def test_a_body_that_is_not_packed_as_it_says_is_told(net: OutboundHttp, kind: str) -> None:
    async with run_raw_server(run_fixed_reply_server(compress_reply(BADLY_COMPRESSED[kind]))) as server:
        with pytest.raises(HttpProtocolError, match="not valid gzip data"):
            await get(net, server.url)


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """Little that becomes 64 MB: fifty times as much, which is allowed."""
    return gzip.compress(b"".join(os.urandom(64) + bytes(8128) for _ in range(8192)), 1)


async def test_a_body_that_unpacks_to_over_a_hundred_times_its_size_is_refused(net: OutboundHttp) -> None:
    async with run_raw_server(
        run_fixed_reply_server(compress_reply(gzip.compress(bytes(64 << 20))))
    ) as server:
        answer = await ask(net, server.url)
        size = 0
        with pytest.raises(HttpProtocolError, match="more than 100 times its size"):
            while piece := await answer.read_chunk():
                size += len(piece)
    assert size <= 8 << 20


async def test_up_to_a_megabyte_a_body_may_unpack_to_any_multiple_of_its_size(net: OutboundHttp) -> None:
    async with run_raw_server(
        run_fixed_reply_server(compress_reply(gzip.compress(bytes(1 << 20))))
    ) as server:
        answer = await ask(net, server.url)
        size = 0
        while piece := await answer.read_chunk():
            size += len(piece)
    assert size == 1 << 20


async def test_other_tasks_run_while_a_body_is_unpacked(net: OutboundHttp, bomb: bytes) -> None:
    turns, done = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with run_raw_server(run_fixed_reply_server(compress_reply(bomb))) as server:
        answer = await ask(net, server.url)
        counting = asyncio.create_task(count())
        pieces = 0
        while await answer.read_chunk():
            pieces += 1
        done.set()
        await counting
    assert turns >= pieces >= 256


@pytest.mark.both_loops
async def test_a_decompressed_body_comes_in_pieces(net: OutboundHttp, bomb: bytes) -> None:
    async with run_raw_server(run_fixed_reply_server(compress_reply(bomb))) as server:
        answer = await ask(net, server.url)
        size = 0
        tracemalloc.start()
        try:
            async with asyncio.timeout(60):
                while piece := await answer.read_chunk():
                    assert len(piece) <= MAX_BUFFERED_BYTES
                    size += len(piece)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert size == 64 << 20
    assert most < 16 * MAX_BUFFERED_BYTES


@pytest.mark.both_loops
async def test_a_reader_can_stop_early(net: OutboundHttp, bomb: bytes) -> None:
    gone = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        # Not all of it, so that the connection is in the middle of it.
        await peer.say(compress_reply(bomb)[:-10])
        await peer.hung_up()
        gone.set()

    async with run_raw_server(serve_peer) as server, asyncio.timeout(30):
        answer = await ask(net, server.url)
        assert len(await answer.read_chunk()) == MAX_BUFFERED_BYTES
        answer.close()
        await gone.wait()


@pytest.mark.parametrize("again", [bytes(65536), gzip.compress(b"") * 2000], ids=["zeros", "empty-parts"])
async def test_bytes_after_a_compressed_body_are_not_kept(net: OutboundHttp, again: bytes) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"hello"))
        for _ in range(1000):
            await peer.say(again)

    async with run_raw_server(serve_peer) as server:
        answer = await ask(net, server.url)
        tracemalloc.start()
        try:
            assert await answer.read_chunk() == b"hello"
            with pytest.raises((HttpProtocolError, TimeoutError)):
                async with asyncio.timeout(0.5):
                    await answer.read_chunk()
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            answer.close()
    assert most < 16 * MAX_BUFFERED_BYTES


# No faster than it is read.


@pytest.mark.both_loops
async def test_a_server_waits_for_a_reader_that_does_not_read(net: OutboundHttp) -> None:
    total, byte_count = 64 << 20, 0

    async def serve_peer(peer: RawConnection) -> None:
        nonlocal byte_count
        await peer.asked()
        await peer.say(f"HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n".encode())
        while byte_count < total:
            peer.writer.write(bytes(1 << 16))
            await peer.writer.drain()
            byte_count += 1 << 16
        while True:
            await peer.asked()
            await peer.say(OK)

    async with run_raw_server(serve_peer) as server, asyncio.timeout(60):
        answer = await ask(net, server.url)
        still, last = 0, -1
        while still < 50:
            await asyncio.sleep(0.002)
            still, last = (still + 1, byte_count) if byte_count == last else (0, byte_count)
        # What the sockets of both sides hold is not here.
        assert byte_count < total // 2
        assert len(await read_body(answer)) == total
        assert await get(net, server.url) == b"hello"
        assert len(server.peers) == 1


@pytest.mark.both_loops
async def test_an_answer_that_came_before_it_was_read_does_not_stop_the_next_one(
    net: OutboundHttp, wait_until: Callable[..., Awaitable[None]]
) -> None:
    size = MAX_BUFFERED_BYTES + 9
    response_bytes = f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode() + bytes(size)
    async with run_raw_server(run_fixed_reply_server(response_bytes)) as server:
        unread = await ask(net, server.url)
        await wait_until(lambda: net.origin_pool(server.url, guarded=False).idle_count == 1)
        assert len(await get(net, server.url)) == size
        assert len(await read_body(unread)) == size
        assert len(server.peers) == 1


# The same, however it comes.

TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_.!~", min_size=1, max_size=12)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
BODIES = st.binary(max_size=300) | st.integers(1, 5).map(lambda many: WORDS[: many * 997])


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, int, str, list[tuple[str, str]], bytes]:
    """A valid answer: its bytes, and what they say."""
    status = draw(st.integers(200, 999).filter(lambda status: status not in (204, 304)))
    reason = draw(st.none() | VALUES.map(str.strip))
    names = TOKENS.map(lambda token: f"X-{token}")
    fields = draw(st.lists(st.tuples(names, VALUES.map(lambda value: value.strip(" \t"))), max_size=4))
    body = draw(BODIES)
    response_body = gzip.compress(body) if (is_zipped := draw(st.booleans())) else body
    framing = draw(st.sampled_from(["length", "chunked", "end"]))
    if framing != "end":
        length = ("Content-Length", str(len(response_body)))
        fields.append(length if framing == "length" else ("Transfer-Encoding", "chunked"))
    if is_zipped:
        fields.append(("Content-Encoding", "gzip"))
    fields = draw(st.permutations(fields))
    first = f"HTTP/1.1 {status}" + ("" if reason is None else f" {reason}")
    early = draw(st.lists(st.sampled_from(["100 Continue", "103 Hints\r\nX-Early: 1", "102"]), max_size=2))
    head = "".join(f"HTTP/1.1 {each}\r\n\r\n" for each in early)
    head += f"{first}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n"
    if framing == "chunked":
        response_body = draw(chunk_body(response_body))
    return head.encode() + response_body, status, reason or "", fields, body


@st.composite
def chunk_body(draw: st.DrawFn, body: bytes) -> bytes:
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(body) - 1)), max_size=4)))
    parts = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    extension = draw(st.sampled_from([b"", b";a", b";a=b", b';a="b c"']))
    lines = [f"{len(part):x}".encode() + extension + b"\r\n" + part + b"\r\n" for part in parts if part]
    trailers = draw(st.lists(TOKENS, max_size=2))
    return b"".join(lines) + b"0\r\n" + b"".join(f"{name}: x\r\n".encode() for name in trailers) + b"\r\n"


@settings(max_examples=60)
@given(answer=answers(), data=st.data())
def test_an_answer_is_the_same_in_all_segmentations(
    answer: tuple[bytes, int, str, list[tuple[str, str]], bytes], data: st.DataObject
) -> None:
    response_parts, *expected = answer
    cuts = sorted(data.draw(st.sets(st.integers(1, len(response_parts) - 1), max_size=12)))
    pieces = [
        response_parts[start:end] for start, end in zip([0, *cuts], [*cuts, len(response_parts)], strict=True)
    ]

    async def read_reply() -> list[object]:
        net = OutboundHttp()
        try:
            async with run_raw_server(run_closing_server(*pieces)) as server:
                answer = await ask(net, server.url)
                return [answer.status, answer.reason, list(answer.headers.items()), await read_body(answer)]
        finally:
            await net.close()

    assert asyncio.run(read_reply()) == expected
