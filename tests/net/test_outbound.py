from __future__ import annotations

import asyncio
import ssl
import sys
import threading
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from yarl import URL

from toolyard.clients.connector import Connector
from toolyard.errors import ServerError
from toolyard.net import AddressRefused, OutboundHttp, is_same_origin, outbound
from toolyard.types.server import HttpSpec, Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.net.conftest import LoopbackHttpServer as HttpServer


async def get(net: OutboundHttp, url: URL, *, guarded: bool = False, **more: Any) -> tuple[int, str]:
    options = net.request_options(url, guarded=guarded)
    async with asyncio.timeout(30), net.session(guarded=guarded).get(url, **options, **more) as response:
        return response.status, await response.text()


# Sessions.


def test_nothing_is_made_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssl, "create_default_context", lambda: pytest.fail("made too early"))
    # Outside of any loop: a session could not even be made here.
    net = OutboundHttp()
    assert net.request_options(URL("http://example.com"), guarded=False) == {"allow_redirects": False}


async def test_aiohttp_is_loaded_in_a_thread_before_the_first_request(
    net: OutboundHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[tuple[str, bool]] = []

    def load(name: str) -> None:
        loaded.append((name, threading.current_thread() is threading.main_thread()))

    monkeypatch.setattr(outbound, "import_module", load)
    await net.load_library()
    assert loaded == []  # It is loaded.
    monkeypatch.delitem(sys.modules, "aiohttp")
    server = Server("s", HttpSpec("http://127.0.0.1:9/"))
    with pytest.raises(ServerError):
        await Connector({}, net=net).connect(server, lambda session: None)
    assert loaded == [("aiohttp", False)]


async def test_a_session_is_made_once_and_shared(net: OutboundHttp) -> None:
    plain, guarded_session = net.session(guarded=False), net.session(guarded=True)
    assert plain is net.session(guarded=False)
    assert guarded_session is net.session(guarded=True)
    assert plain is not guarded_session
    assert plain.connector is not guarded_session.connector


async def test_after_a_close_a_new_session_is_made(server: HttpServer, net: OutboundHttp) -> None:
    first = net.session(guarded=False)
    await net.close()
    assert first.closed
    assert net.session(guarded=False) is not first
    assert await get(net, server.url) == (200, "hello")
    await net.session(guarded=False).close()
    assert await get(net, server.url) == (200, "hello")
    await net.close()
    await net.close()


async def test_requests_after_another_use_the_same_connection(server: HttpServer, net: OutboundHttp) -> None:
    for _ in range(3):
        await get(net, server.url)
    assert len({request.transport.get_extra_info("peername") for request in server.seen}) == 1


async def test_many_requests_go_at_the_same_time(serve: Callable[..., object], net: OutboundHttp) -> None:
    everyone, waiter_count = asyncio.Event(), 0

    async def handler(request: web.BaseRequest) -> web.Response:
        nonlocal waiter_count
        waiter_count += 1
        if waiter_count == 150:
            everyone.set()
        await everyone.wait()
        return web.Response()

    async with serve(handler) as server, asyncio.timeout(30):
        answers = await asyncio.gather(*(get(net, server.url) for _ in range(150)))
    assert answers == [(200, "")] * 150


async def test_no_cookies_are_kept(serve: Callable[..., object], net: OutboundHttp) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        response = web.Response()
        response.set_cookie("id", "secret")
        return response

    async with serve(handler) as server:
        # By name too: aiohttp's own jar treats addresses and names differently.
        for url in (server.url, server.url, server.at("localhost"), server.at("localhost")):
            await get(net, url)
    assert [request.headers.get("Cookie") for request in server.seen] == [None] * 4


async def test_redirects_are_left_to_the_caller(serve: Callable[..., object], net: OutboundHttp) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with serve(handler) as server:
        assert (await get(net, server.url))[0] == 307
    assert [request.path for request in server.seen] == ["/"]


@pytest.mark.parametrize("status", [400, 401, 404, 500])
async def test_a_status_that_says_no_is_an_answer(
    serve: Callable[..., object], net: OutboundHttp, status: int
) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text="no")

    async with serve(handler) as server:
        assert await get(net, server.url) == (status, "no")


async def test_long_headers_of_an_answer_are_read(serve: Callable[..., object], net: OutboundHttp) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        return web.Response(headers={"X-Long": "x" * 20_000})

    async with serve(handler) as server:
        assert (await get(net, server.url))[0] == 200


# TLS.


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def test_there_is_one_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    ssl_contexts: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def count_contexts() -> ssl.SSLContext:
        ssl_contexts.append(create())
        return ssl_contexts[-1]

    monkeypatch.setattr(ssl, "create_default_context", count_contexts)
    net = OutboundHttp()
    tls_contexts = [
        net.request_options(URL(f"https://{host}/"), guarded=is_guarded)["ssl"]
        for host in "ab"
        for is_guarded in (True, False)
    ]
    assert ssl_contexts == [net.tls_context()]
    assert all(context is ssl_contexts[0] for context in tls_contexts)
    assert ssl_contexts[0].verify_mode is ssl.CERT_REQUIRED
    assert ssl_contexts[0].check_hostname


@pytest.mark.both_loops
async def test_a_certificate_of_an_unknown_authority_is_refused(
    serve: Callable[..., object], net: OutboundHttp, authority: trustme.CA
) -> None:
    async with serve(tls=server_tls(authority, "localhost", "127.0.0.1")) as server:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(net, server.url)
    assert server.seen == []


@pytest.mark.both_loops
async def test_a_certificate_of_a_trusted_authority_is_accepted(
    serve: Callable[..., object], net: OutboundHttp, authority: trustme.CA
) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    net.set_tls_context(context)
    assert net.tls_context() is context
    async with serve(tls=server_tls(authority, "localhost", "127.0.0.1")) as server:
        assert await get(net, server.url) == (200, "hello")
        assert await get(net, server.at("localhost", "https")) == (200, "hello")


@pytest.mark.both_loops
async def test_a_certificate_of_another_name_is_refused(
    serve: Callable[..., object], net: OutboundHttp, authority: trustme.CA
) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    net.set_tls_context(context)
    async with serve(tls=server_tls(authority, "other.example")) as server:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(net, server.at("localhost", "https"))
    assert server.seen == []


@pytest.mark.both_loops
async def test_the_guard_comes_before_tls(
    serve: Callable[..., object], net: OutboundHttp, authority: trustme.CA
) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    net.set_tls_context(context)
    async with serve(tls=server_tls(authority, "localhost", "127.0.0.1")) as server:
        with pytest.raises(aiohttp.ClientConnectorError) as exc_info:
            await get(net, server.url, guarded=True)
        assert isinstance(exc_info.value.os_error, AddressRefused)
    assert server.seen == []


# Proxies.


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "http://proxy.example:3128")
    net = OutboundHttp()
    assert (
        net.request_options(URL("http://example.com/"), guarded=False)["proxy"] == "http://proxy.example:3128"
    )
    assert "proxy" not in net.request_options(URL("https://example.com/"), guarded=False)


def test_each_scheme_has_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://one.example:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://two.example:2")
    net = OutboundHttp()
    assert net.request_options(URL("http://example.com/"), guarded=False)["proxy"] == "http://one.example:1"
    assert net.request_options(URL("https://example.com/"), guarded=False)["proxy"] == "http://two.example:2"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_reached_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, scheme: str, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert "proxy" not in OutboundHttp().request_options(URL(f"{scheme}://{host}:8000/mcp"), guarded=False)


def test_a_guarded_request_has_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert "proxy" not in OutboundHttp().request_options(URL("http://example.com/"), guarded=True)


@pytest.mark.parametrize(
    ("bypass", "host", "through"),
    [
        ("example.com", "example.com", False),
        ("example.com", "api.example.com", False),
        (".example.com", "api.example.com", False),
        ("*", "example.com", False),
        ("example.com", "example.org", True),
        ("10.0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "10.0.0.2", True),
    ],
)
def test_no_proxy_names_hosts_that_need_none(
    monkeypatch: pytest.MonkeyPatch, bypass: str, host: str, through: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", bypass)
    assert ("proxy" in OutboundHttp().request_options(URL(f"http://{host}/"), guarded=False)) is through


@pytest.mark.both_loops
async def test_a_request_goes_through_the_proxy(
    serve: Callable[..., object], net: OutboundHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def proxy(request: web.BaseRequest) -> web.Response:
        return web.Response(text="from afar")

    async with serve(proxy) as server:
        monkeypatch.setenv("HTTP_PROXY", str(server.url))
        assert await get(net, URL("http://nowhere.invalid/mcp")) == (200, "from afar")
    assert [request.raw_path for request in server.seen] == ["http://nowhere.invalid/mcp"]


async def test_a_session_takes_no_proxy_by_itself(
    server: HttpServer, serve: Callable[..., object], net: OutboundHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as proxy:
        monkeypatch.setenv("HTTP_PROXY", str(proxy.url))
        async with asyncio.timeout(30), net.session(guarded=False).get(server.url) as response:
            assert response.status == 200
    assert (len(server.seen), proxy.seen) == (1, [])


# Origins.


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.example/x", "https://a.example/y?z#f", True),
        ("https://a.example", "https://a.example:443/", True),
        ("http://a.example:80/", "http://a.example/", True),
        ("https://A.example/", "https://a.EXAMPLE/", True),
        ("HTTPS://a.example/", "https://a.example/", True),
        ("https://user:pass@a.example/", "https://a.example/", True),
        ("http://[::1]:5/", "http://[0:0:0:0:0:0:0:1]:5/", True),
        ("https://bücher.example/", "https://xn--bcher-kva.example/", True),
        ("https://a.example/", "http://a.example/", False),
        ("https://a.example/", "https://b.example/", False),
        ("https://a.example/", "https://a.example.evil.example/", False),
        ("https://a.example/", "https://a.example:8443/", False),
        ("https://a.example:80/", "http://a.example:80/", False),
        ("https://a.example/", "https://a.example@evil.example/", False),
        ("https://a.example/", "mailto:a@a.example", False),
        ("https://a.example/", "/relative", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert is_same_origin(URL(one), URL(other)) is same
    assert is_same_origin(URL(other), URL(one)) is same
