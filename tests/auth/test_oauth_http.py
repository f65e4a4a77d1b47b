from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from toolyard.auth.errors import AddressNotAllowed, AuthUnavailable
from toolyard.auth.oauth_http import AddressPolicy, OAuthHttpClient, sanitize_error_text
from toolyard.net import OutboundHttp

HERE = "http://127.0.0.1:1/mcp"


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    match request.path:
        case "/fine":
            return web.json_response({"fine": request.method})
        case "/moved":
            return web.Response(status=307, headers={"Location": "/fine"})
        case "/round":
            return web.Response(status=302, headers={"Location": "/round"})
        case "/far":
            return web.Response(status=302, headers={"Location": "ftp://elsewhere.example/"})
        case "/list":
            return web.json_response(["no", "object"])
        case "/page":
            return web.Response(text="<html>", content_type="text/html")
        case "/large":
            return web.Response(body=b'{"a":"' + b"x" * 300_000 + b'"}', content_type="application/json")
        case "/stream":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await asyncio.sleep(3600)
            return response
        case _:
            await asyncio.sleep(3600)
            raise AssertionError


@pytest.fixture
async def base(no_proxies: None) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def net() -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp()
    yield net
    await net.close()


async def test_a_document_is_read_and_a_redirect_followed(base: str, net: OutboundHttp) -> None:
    asker = OAuthHttpClient(net, AddressPolicy(HERE))
    assert (await asker.get(f"{base}/fine", "it")).document == {"fine": "GET"}
    assert (await asker.get(f"{base}/moved", "it")).document == {"fine": "GET"}


async def test_requests_with_secrets_follow_no_redirect(base: str, net: OutboundHttp) -> None:
    response = await OAuthHttpClient(net, AddressPolicy(HERE)).post(
        f"{base}/moved", "it", b"{}", "application/json"
    )
    assert (response.status, response.document) == (307, None)


@pytest.mark.parametrize("path", ["round", "far"])
async def test_a_redirect_that_leads_nowhere_is_an_error(base: str, net: OutboundHttp, path: str) -> None:
    with pytest.raises(AddressNotAllowed):
        await OAuthHttpClient(net, AddressPolicy(HERE)).get(f"{base}/{path}", "it")


@pytest.mark.parametrize("path", ["list", "page", "large", "stream"])
async def test_only_small_json_objects_are_documents(base: str, net: OutboundHttp, path: str) -> None:
    async with asyncio.timeout(30):
        oauth_response = await OAuthHttpClient(net, AddressPolicy(HERE)).get(f"{base}/{path}", "it")
    assert (oauth_response.status, oauth_response.document) == (200, None)


async def test_silence_is_not_waited_for_for_ever(base: str, net: OutboundHttp) -> None:
    with pytest.raises(AuthUnavailable, match="did not answer within"):
        await OAuthHttpClient(net, AddressPolicy(HERE), timeout_seconds=0.1).get(f"{base}/silent", "it")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_public_server_cannot_send_us_to_a_private_address(
    base: str, net: OutboundHttp, name: str
) -> None:
    asker = OAuthHttpClient(net, AddressPolicy("https://mcp.example.com/mcp"))
    address = base.replace("127.0.0.1", name)
    with pytest.raises(AddressNotAllowed, match="private") as exc_info:
        await asker.get(f"{address}/fine", "the metadata")
    assert "privateAddresses" in (exc_info.value.hint or "")


async def test_a_name_that_does_not_exist_is_named(net: OutboundHttp, no_proxies: None) -> None:
    with pytest.raises(AuthUnavailable, match=r"nowhere\.invalid"):
        await OAuthHttpClient(net, AddressPolicy(HERE)).get("https://nowhere.invalid/x", "it")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("plain", "plain"),
        ("two\nlines\t here", "two lines here"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("bell\x07", "bell\ufffd"),
        ("x" * 500, "x" * 200),
        ("with the-secret inside", "with *** inside"),
        (None, ""),
        (5, ""),
    ],
)
def test_text_of_other_servers_is_shown_on_one_line(words: object, line: str) -> None:
    assert sanitize_error_text(words, ["the-secret", None]) == line
