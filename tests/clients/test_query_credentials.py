"""A key in the query of an address: sent with every request to that server, to no other, and never shown."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp.web
import pytest
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.clients.connector import server_fingerprint
from toolyard.clients.secret_redaction import find_secrets
from toolyard.errors import ServerError, Unreachable
from toolyard.types.server import HttpSpec, ProtocolEra, Server, Timeouts

Until = Callable[..., Awaitable[None]]

SECRET = "zebra/47 11+hush&ü"
SPELLINGS = (
    SECRET,
    "zebra%2F47%2011%2Bhush%26%C3%BC",
    "zebra/47+11%2Bhush%26%C3%BC",
    "zebra/47%2011%2Bhush%26%C3%BC",
)
QUERY = {"key": SECRET}
HINT = {"mode": "a"}


@dataclass
class Site:
    """A server that records its requests, and answers as ``mode`` says."""

    mode: str
    url: str = ""
    elsewhere: str = ""
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[Any])
    stream: asyncio.Queue[dict[str, Any] | None] = field(default_factory=asyncio.Queue[Any])

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        self.asked.append((request.method, request.path, dict(request.query)))
        if request.path == "/stolen" or request.query.get("key") != SECRET:
            return aiohttp.web.Response(status=404)
        if self.mode == "redirect" and request.path == "/mcp":
            return aiohttp.web.Response(status=307, headers={"Location": f"/moved?from={request.path}"})
        if self.mode == "leave":
            return aiohttp.web.Response(status=307, headers={"Location": f"{self.elsewhere}/stolen"})
        if self.mode == "quote":
            return aiohttp.web.Response(status=500, text=f"{request.raw_path} {request.query['key']}")
        if request.method == "DELETE":
            return aiohttp.web.Response()
        if request.method == "GET":
            return await self._stream(request) if self.mode == "sse" else aiohttp.web.Response(status=405)
        message = await request.json()
        if self.mode == "nonsense" and message["method"] == "tools/call":
            assert request.transport is not None
            request.transport.write(b"HTTP/1.1 nonsense\r\n\r\n")
            return aiohttp.web.Response()
        if message.get("id") is None:
            return aiohttp.web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": _result(message["method"])}
        if self.mode == "sse":
            await self.stream.put(answer)
            return aiohttp.web.Response(status=202)
        return aiohttp.web.json_response(answer, headers={"Mcp-Session-Id": "s"})

    async def _stream(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\ndata: /post?session=1\n\n")
        while (message := await self.stream.get()) is not None:
            await response.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        return response


def _result(method: str) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "site", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    return {"content": [{"type": "text", "text": "done"}]}


@asynccontextmanager
async def listening(site: Site) -> AsyncIterator[Site]:
    app = aiohttp.web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield site
    finally:
        await site.stream.put(None)
        await runner.cleanup()


def server(site: Site, **keys: Any) -> Server:
    kind = "sse" if site.mode == "sse" else "http"
    spec = HttpSpec(f"{site.url}/mcp?mode=a", query=QUERY, type=kind)
    return Server("bad", spec, protocol=ProtocolEra.LEGACY, timeouts=Timeouts(5, 5, 5), **keys)


def list_error_texts(error: BaseException) -> Iterator[str]:
    yield str(error)
    yield repr(vars(error))
    yield "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("mode", "paths"),
    [
        ("plain", {("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp")}),
        ("sse", {("GET", "/mcp"), ("POST", "/post")}),
        ("redirect", {("POST", "/mcp"), ("POST", "/moved"), ("GET", "/moved"), ("DELETE", "/moved")}),
    ],
)
async def test_every_request_to_the_server_has_it(
    mode: str, paths: set[tuple[str, str]], wait_until: Until
) -> None:
    async with listening(Site(mode)) as site:
        async with ConnectionManager([server(site)], on_notification=lambda *_: None) as manager:
            result = await call_tool(manager, "bad", "look")
            assert result["content"][0]["text"] == "done"
            await wait_until(lambda: any(method == "GET" for method, _, _ in site.asked))
        assert {(method, path) for method, path, _ in site.asked} == paths
        assert all(query["key"] == SECRET for _, _, query in site.asked)
        rest = {path: {key: query[key] for key in query if key != "key"} for _, path, query in site.asked}
        expected = {"/mcp": HINT, "/post": {"session": "1"}, "/moved": {"from": "/mcp"}}
        assert rest == {path: expected[path] for path in rest}


async def test_it_does_not_follow_to_another_origin() -> None:
    async with (
        listening(Site("leave")) as site,
        listening(Site("plain")) as other,
        ConnectionManager([server(site)]) as manager,
    ):
        site.elsewhere = other.url
        with pytest.raises(Unreachable, match="redirects to another origin"):
            await call_tool(manager, "bad", "look")
        assert other.asked == []


@pytest.mark.parametrize("mode", ["quote", "nonsense", "leave"])
async def test_it_shows_in_no_error_record_or_log(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolyard")
    async with listening(Site(mode)) as site, ConnectionManager([server(site)]) as manager:
        with pytest.raises(ServerError) as exc_info:
            await call_tool(manager, "bad", "look")
        assert site.asked
        texts = [*list_error_texts(exc_info.value), repr(manager.statuses()), repr(manager.servers)]
        texts += [record.getMessage() for record in caplog.records if record.name.startswith("toolyard")]
        for spelling in SPELLINGS:
            assert not any(spelling in each for each in texts)
        if mode == "quote":
            assert "key=***" in exc_info.value.cause


async def test_a_closed_port_causes_an_error_without_the_key() -> None:
    async with listening(Site("plain")) as site:
        definition = server(site)
    async with ConnectionManager([definition]) as manager:
        with pytest.raises(Unreachable) as exc_info:
            await call_tool(manager, "bad", "look")
        assert not any(
            spelling in each for spelling in SPELLINGS for each in list_error_texts(exc_info.value)
        )


def test_all_its_spellings_are_secrets() -> None:
    spec = HttpSpec("http://a/", query={**QUERY, "n": "short"})
    assert find_secrets(Server("one", spec)) == (SECRET, "11+hush&ü", SPELLINGS[2])
    assert SECRET not in repr(spec)


def test_the_era_of_a_server_is_the_same_for_every_key() -> None:
    one, other = (Server("one", HttpSpec("http://a/", query={"key": key})) for key in ("a", "b"))
    assert server_fingerprint(one) == server_fingerprint(other)
    assert one != other
