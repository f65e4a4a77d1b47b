"""Ways to a server: TLS, proxies and the guard, with the errors that the rest of the program knows."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from tests.fake_dns import FakeResolver
from tests.net.raw_server import (
    OK,
    RawConnection,
    Talk,
    ask,
    get,
    read_body,
    run_fixed_reply_server,
    run_raw_server,
)
from tests.ports import free_port
from yarl import URL

from toolyard.net import AddressGuard, AddressRefused, OutboundHttp

pytestmark = pytest.mark.usefixtures("nothing_left")
BASIC = f"Proxy-Authorization: Basic {base64.b64encode(b'me:p w').decode()}\r\n".encode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def trusting(net: OutboundHttp, trust: ssl.SSLContext) -> OutboundHttp:
    net.set_tls_context(trust)
    return net


def tls_of(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


# Servers as they are.


@pytest.mark.both_loops
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_a_real_server_is_understood(
    serve: Callable[..., object], trusting: OutboundHttp, authority: trustme.CA, secure: bool
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(
            body=await request.read() * 100, headers={"Location": "/elsewhere"}, status=307
        )
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with serve(handler, tls_of(authority, "127.0.0.1") if secure else None) as server:
        for size in (1, 100, 20_000):
            request_body = random.Random(size).randbytes(size)
            answer = await ask(trusting, server.url, "POST", {}, request_body)
            assert (answer.status, await read_body(answer)) == (307, request_body * 100)
        assert len({request.transport.get_extra_info("peername") for request in server.seen}) == 1
        assert [request.path for request in server.seen] == ["/"] * 3


async def test_a_closed_port_is_a_connection_error(net: OutboundHttp) -> None:
    with pytest.raises(aiohttp.ClientConnectorError):
        await get(net, URL(f"http://127.0.0.1:{free_port()}/"))


# TLS.


@pytest.mark.both_loops
async def test_certificates_that_do_not_fit_are_told_as_such(
    net: OutboundHttp, trusting: OutboundHttp, authority: trustme.CA
) -> None:
    async with (
        run_raw_server(run_fixed_reply_server(OK), tls=tls_of(trustme.CA(), "127.0.0.1")) as unknown,
        run_raw_server(run_fixed_reply_server(OK), tls=tls_of(authority, "other.example")) as other,
        run_raw_server(run_fixed_reply_server(OK), tls=tls_of(authority, "127.0.0.1")) as right,
    ):
        for server in (unknown, other):
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await get(trusting, server.url)
            assert server.heads == []
        assert await get(trusting, right.url) == b"hello"


@pytest.mark.both_loops
async def test_a_server_without_tls_is_told_as_such(trusting: OutboundHttp) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.hung_up()

    async with run_raw_server(serve_peer) as server:
        with pytest.raises(aiohttp.ClientConnectorSSLError):
            await get(trusting, server.url.with_scheme("https"))


@pytest.mark.both_loops
async def test_a_body_until_the_end_comes_whole_through_tls(
    trusting: OutboundHttp, authority: trustme.CA
) -> None:
    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\n", b"hel", b"lo")

    async with run_raw_server(serve_peer, tls=tls_of(authority, "127.0.0.1")) as server:
        assert await get(trusting, server.url) == b"hello"


@pytest.mark.both_loops
async def test_an_endless_response_can_be_abandoned(trusting: OutboundHttp, authority: trustme.CA) -> None:
    gone = asyncio.Event()

    async def serve_peer(peer: RawConnection) -> None:
        await peer.asked()
        await peer.say(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not peer.writer.transport.is_closing():
                await peer.say(bytes(1 << 16))
        finally:
            gone.set()

    async with run_raw_server(serve_peer, tls=tls_of(authority, "127.0.0.1")) as server, asyncio.timeout(30):
        answer = await ask(trusting, server.url)
        assert await answer.read_chunk()
        answer.close()
        await gone.wait()


@pytest.mark.both_loops
async def test_closing_a_net_does_not_wait_for_the_goodbye_of_tls(
    trusting: OutboundHttp, authority: trustme.CA, wait_until: Callable[..., Awaitable[None]]
) -> None:
    ends: list[Any] = []

    async def proxy(peer: RawConnection) -> None:
        # Passes everything on until the test says no more: a goodbye is never heard.
        reader, writer = await asyncio.open_connection("127.0.0.1", server.url.port)
        ends.extend((peer.writer.transport, writer.transport))
        try:
            await asyncio.gather(passing(peer.reader, writer), passing(reader, peer.writer))
        finally:
            writer.transport.abort()

    async with (
        run_raw_server(run_fixed_reply_server(OK), tls=tls_of(authority, "127.0.0.1")) as server,
        run_raw_server(proxy) as between,
    ):
        assert await get(trusting, between.url.with_scheme("https")) == b"hello"
        reading, writing = ends
        writing.pause_reading()
        await trusting.close()
        # Half a minute is what TLS would wait.
        await wait_until(lambda: reading.is_closing() or between.peers[0].reader.at_eof(), 15)


async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


# Proxies.


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Callable[[URL], None]:
    """Makes an address the proxy of everything."""

    def use(url: URL) -> None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, str(url.with_user("me").with_password("p w").with_path("")))

    return use


@pytest.mark.both_loops
async def test_a_proxy_gets_the_whole_address_and_credentials(
    net: OutboundHttp, through: Callable[[URL], None]
) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as proxy:
        through(proxy.url)
        url = URL("http://you:secret@far.example/a%20b?q=1#part")
        origin = net.origin_pool(url, guarded=False)
        for _ in range(2):
            assert await read_body(await origin.request("GET", url, {})) == b"hello"
        assert (len(proxy.peers), len(proxy.heads)) == (1, 2)
        for head in proxy.heads:
            assert head.startswith(b"GET http://far.example/a%20b?q=1 HTTP/1.1\r\n")
            assert b"\r\nHost: far.example\r\n" in head
            assert head.count(BASIC) == 1


def tunnel(port: int | None, status: bytes = b"200 Go") -> Talk:
    """A proxy that leads every CONNECT to one port of this machine."""

    async def serve_peer(peer: RawConnection) -> None:
        await peer.head()
        await peer.say(b"HTTP/1.1 " + status + b"\r\n\r\n")
        if port is not None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(passing(peer.reader, writer), passing(reader, peer.writer))
            finally:
                writer.transport.abort()

    return serve_peer


@pytest.mark.both_loops
async def test_tls_goes_through_a_tunnel_of_the_proxy(
    trusting: OutboundHttp, authority: trustme.CA, through: Callable[[URL], None]
) -> None:
    async with (
        run_raw_server(run_fixed_reply_server(OK), tls=tls_of(authority, "far.example")) as server,
        run_raw_server(tunnel(server.url.port)) as proxy,
    ):
        through(proxy.url)
        for _ in range(2):
            assert await get(trusting, URL("https://far.example/mcp")) == b"hello"
        (connect,) = proxy.heads
        assert connect.startswith(b"CONNECT far.example:443 HTTP/1.1\r\n")
        assert BASIC in connect
        assert (len(server.peers), len(server.heads)) == (1, 2)
        for head in server.heads:
            assert head.startswith(b"GET /mcp HTTP/1.1\r\nHost: far.example\r\n")
            assert b"Proxy-" not in head
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(trusting, URL("https://other.example/"))


@pytest.mark.both_loops
async def test_a_proxy_that_refuses_is_told_as_such(
    trusting: OutboundHttp, through: Callable[[URL], None]
) -> None:
    async with run_raw_server(tunnel(None, b"407 Who?")) as proxy:
        through(proxy.url)
        with pytest.raises(aiohttp.ClientHttpProxyError, match="407"):
            await get(trusting, URL("https://far.example/"))


async def test_a_proxy_that_is_not_there_is_an_error_of_connecting(
    net: OutboundHttp, through: Callable[[URL], None]
) -> None:
    through(URL(f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(aiohttp.ClientProxyConnectionError):
        await get(net, URL("http://far.example/"))


# The guard.


@pytest.mark.both_loops
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_guard_refuses_private_addresses(net: OutboundHttp, host: str) -> None:
    async with run_raw_server(run_fixed_reply_server(OK)) as server:
        url = server.url.with_host(host)
        assert await get(net, url) == b"hello"
        with pytest.raises(aiohttp.ClientConnectorError) as exc_info:
            await ask(net, url, guarded=True)
        assert "is private" in str(exc_info.value.os_error)
        assert isinstance(exc_info.value.os_error, AddressRefused)
        assert (len(server.heads), len(server.peers)) == (1, 1)


async def test_a_guarded_request_goes_past_the_proxy(through: Callable[[URL], None]) -> None:
    net = OutboundHttp(
        AddressGuard.from_settings(["127.0.0.1"], []), resolver=FakeResolver({"far.example": "127.0.0.1"})
    )
    try:
        async with (
            run_raw_server(run_fixed_reply_server(OK)) as server,
            run_raw_server(run_fixed_reply_server(OK)) as proxy,
        ):
            through(proxy.url)
            url = server.url.with_host("far.example")
            for is_guarded in (True, False):
                assert await read_body(await ask(net, url, guarded=is_guarded)) == b"hello"
            assert (len(server.heads), len(proxy.heads)) == (1, 1)
            assert server.heads[0].startswith(b"GET /mcp HTTP/1.1\r\n")
            assert b"Proxy-" not in server.heads[0]
    finally:
        await net.close()
