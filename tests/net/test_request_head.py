"""What the head of a request says."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from tests.net.raw_server import OK, ask, get, read_body, run_fixed_reply_server, run_raw_server
from yarl import URL

from toolyard.net import OutboundHttp

pytestmark = pytest.mark.usefixtures("nothing_left")
Until = Callable[..., Awaitable[None]]


def words(head: bytes) -> dict[str, list[str]]:
    """The headers of a request, by their names in small letters."""
    header_values: dict[str, list[str]] = {}
    for line in head.decode().split("\r\n")[1:-2]:
        name, _, value = line.partition(": ")
        header_values.setdefault(name.lower(), []).append(value)
    return header_values


async def test_a_request_has_its_given_headers_and_few_others(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        url = server.url.with_path("/a b/ü").with_query({"q": "x y&z"}).with_fragment("part")
        for _ in range(2):
            await read_body(await ask(net, url, "POST", {"X-Word": "grüße", "accept": "text/plain"}, b"{}"))
        assert len(server.heads) == 2
        for head in server.heads:
            assert head.startswith(b"POST /a%20b/%C3%BC?q=x+y%26z HTTP/1.1\r\n")
            header_words = words(head)
            assert header_words.pop("user-agent")
            assert header_words == {
                "host": [f"127.0.0.1:{server.url.port}"],
                "accept": ["text/plain"],
                "accept-encoding": ["gzip"],
                "x-word": ["grüße"],
                "content-length": ["2"],
            }


async def test_a_request_without_a_body_says_no_length_and_an_empty_one_does(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        await read_body(await ask(net, server.url, "DELETE"))
        await read_body(await ask(net, server.url, "POST", {}, b""))
        assert [words(head).get("content-length") for head in server.heads] == [None, ["0"]]


@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "kept"])
@pytest.mark.parametrize(
    "header",
    [
        ("X", "a\r\nb: c"),
        ("X", "a\rb"),
        ("X", "a\nb"),
        ("X", "\n"),
        ("X", "a\0b"),
        ("X\r\nY", "a"),
        ("X\n", "a"),
    ],
)
async def test_a_header_with_a_line_break_is_refused_before_anything_is_sent(
    net: OutboundHttp, kept: bool, header: tuple[str, str], wait_until: Until
) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        if kept:
            await get(net, server.url)
        with pytest.raises(ValueError):
            await ask(net, server.url, "POST", dict([header]), b"{}")
        await wait_until(lambda: [peer.reader.at_eof() for peer in server.peers] == [True])
        assert len(server.heads) == kept
        assert await get(net, server.url) == b"hello"


async def test_a_header_that_cannot_be_encoded_is_refused_too(net: OutboundHttp, wait_until: Until) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        with pytest.raises(ValueError):
            await ask(net, server.url, "GET", {"X": "\udcff"})
        await wait_until(lambda: [peer.reader.at_eof() for peer in server.peers] == [True])
        assert server.heads == []


async def test_credentials_of_the_address_are_said_and_given_ones_win(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        url = server.url.with_user("mé").with_password("p:w")
        await get(net, url)
        await read_body(await ask(net, url, "GET", {"authorization": "Bearer x"}))
        basic = base64.b64encode("mé:p:w".encode("latin-1")).decode()
        assert [words(head)["authorization"] for head in server.heads] == [[f"Basic {basic}"], ["Bearer x"]]
        assert all(head.startswith(b"GET /mcp HTTP/1.1\r\n") for head in server.heads)


async def test_the_host_that_the_configuration_says_wins(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        for name in ("Host", "host"):
            await read_body(await ask(net, server.url, "GET", {name: "inner.example"}))
        assert [words(head)["host"] for head in server.heads] == [["inner.example"]] * 2


def version_6() -> bool:
    """Whether this machine has it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not version_6(), reason="this machine has no IPv6")
async def test_an_address_of_six_parts_is_said_in_brackets(net: OutboundHttp) -> None:
    async with run_raw_server(run_fixed_reply_server(OK), host="::1") as server:
        await get(net, server.url)
        assert words(server.heads[0])["host"] == [f"[::1]:{server.url.port}"]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "ws://127.0.0.1/", "/nowhere", "mailto:me@example.com"])
async def test_invalid_urls_are_refused(net: OutboundHttp, url: str) -> None:
    with pytest.raises((ValueError, aiohttp.ClientError)):
        await ask(net, URL(url))
