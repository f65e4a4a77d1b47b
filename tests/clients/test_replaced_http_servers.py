"""HTTP servers that were replaced: the next call reconnects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp.web
import pytest
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.errors import HttpStatus, RpcError, Throttled
from toolyard.types.server import HttpSpec, Server, State, Timeouts

Refusal = Callable[[], aiohttp.web.Response]


def bare(code: int, message: str) -> Refusal:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return lambda: aiohttp.web.json_response(body, status=400)


MISSING = bare(-32600, "Bad Request: Missing session ID")


@dataclass
class EraSwitchingServer:
    """A server on loopback that currently speaks ``era``, with request counts by path."""

    era: str = "modern"
    refusal: Refusal = MISSING
    url: str = ""
    asked: list[str] = field(default_factory=list[str])

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        self.asked.append(request.path)
        if request.method != "POST":
            return aiohttp.web.Response(status=405)
        if self.era == "away" and request.path == "/mcp":
            return aiohttp.web.Response(status=302, headers={"Location": "/patience"})
        if self.era in ("away", "down"):
            return aiohttp.web.Response(status=503, text="<h1>soon</h1>", content_type="text/html")
        if self.era == "busy":
            return aiohttp.web.Response(status=429, headers={"Retry-After": "\u00b2"})
        if self.era == "slash" and request.path == "/mcp":
            return aiohttp.web.Response(status=307, headers={"Location": "/mcp/"})
        if request.path != ("/mcp/" if self.era == "slash" else "/mcp"):
            return aiohttp.web.Response(status=404)
        return getattr(self, f"_{self.era}")(await request.json(), request)

    def _modern(self, message: dict[str, Any], request: aiohttp.web.Request) -> aiohttp.web.Response:
        results: dict[str, dict[str, Any]] = {
            "server/discover": {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "modern", "version": "1"},
            },
            "tools/call": {"content": [{"type": "text", "text": self.era}]},
        }
        message_result = results.get(message["method"])
        if message_result is None:
            error = {"code": -32601, "message": "Method not found"}
            return aiohttp.web.json_response(
                {"jsonrpc": "2.0", "id": message["id"], "error": error}, status=404
            )
        result = {"resultType": "complete", **message_result}
        return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})

    _slash = _modern

    def _picky(self, message: dict[str, Any], request: aiohttp.web.Request) -> aiohttp.web.Response:
        """Reject its own version at the first request."""
        if len(self.asked) > 1:
            return self._modern(message, request)
        data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        return aiohttp.web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)

    def _sessionless(self, message: dict[str, Any], request: aiohttp.web.Request) -> aiohttp.web.Response:
        return self._old(message, {})

    def _legacy(self, message: dict[str, Any], request: aiohttp.web.Request) -> aiohttp.web.Response:
        if message["method"] != "initialize" and "Mcp-Session-Id" not in request.headers:
            return self.refusal()
        return self._old(message, {"Mcp-Session-Id": "abc"})

    def _old(self, message: dict[str, Any], headers: dict[str, str]) -> aiohttp.web.Response:
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "legacy", "version": "1"},
            },
            "tools/call": {"content": [{"type": "text", "text": self.era}]},
        }
        if "id" not in message:
            return aiohttp.web.Response(status=202)
        if message["method"] not in results:
            error = {"code": -32601, "message": "Method not found"}
            return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        body = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        return aiohttp.web.json_response(body, headers=headers)


@pytest.fixture
async def changing() -> AsyncIterator[EraSwitchingServer]:
    era_switching_server = EraSwitchingServer()
    app = aiohttp.web.Application()
    app.router.add_route("*", "/{path:.*}", era_switching_server.answer)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    services = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await services.start()
    era_switching_server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    yield era_switching_server
    await runner.cleanup()


@pytest.fixture
async def manager(changing: EraSwitchingServer) -> AsyncIterator[ConnectionManager]:
    patient = Timeouts(connect=30.0, silence=30.0, call=30.0)
    async with ConnectionManager(
        [Server("one", HttpSpec(changing.url), timeouts=patient)]
    ) as connection_manager:
        yield connection_manager


async def call_say(manager: ConnectionManager) -> str:
    return (await call_tool(manager, "one", "say", {}))["content"][0]["text"]


WANTS_A_SESSION = {
    "python": MISSING,
    "python, of a version": bare(
        -32600, "Bad Request: Unsupported protocol version: 2026-07-28. Supported …"
    ),
    "typescript": bare(-32000, "Bad Request: Server not initialized"),
    "examples": bare(-32000, "Bad Request: No valid session ID provided"),
    "no json": lambda: aiohttp.web.Response(status=400, text="Invalid or missing session ID"),
}


@pytest.mark.parametrize("before", ["modern", "sessionless"])
@pytest.mark.parametrize("words", WANTS_A_SESSION)
async def test_a_server_that_wants_a_session_since_gets_one(
    before: str, words: str, changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    changing.era = before
    assert await call_say(manager) == before
    changing.era, changing.refusal = "legacy", WANTS_A_SESSION[words]
    assert await call_say(manager) == "legacy"
    assert manager.status("one").connects == 2


async def test_an_error_that_mentions_another_session_is_not_retried(
    changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    assert await call_say(manager) == "modern"
    changing.era, changing.refusal = "legacy", bare(-32602, "the browser session 'x' was not found")
    changing.asked.clear()
    with pytest.raises(RpcError, match="browser session"):
        await call_say(manager)
    assert changing.asked == ["/mcp"]


@pytest.mark.parametrize("era", ["picky", "legacy"])
async def test_the_answer_to_the_first_request_decides_the_era(
    era: str, changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    changing.era = era
    assert await call_say(manager) == era
    assert manager.status("one").connects == 1


async def test_a_page_that_asks_for_patience_is_not_taken_for_the_server(
    changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    assert await call_say(manager) == "modern"
    changing.era = "away"
    for _ in range(2):
        with pytest.raises(HttpStatus, match="answered with HTTP 503"):
            await call_say(manager)
    changing.era = "modern"
    assert await call_say(manager) == "modern"
    assert changing.asked[-1] == "/mcp"


async def test_a_redirect_that_leads_to_the_server_is_remembered_until_it_does_not(
    changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    changing.era = "slash"
    for _ in range(2):
        assert await call_say(manager) == "slash"
    assert changing.asked == ["/mcp", "/mcp/", "/mcp/", "/mcp/"]
    changing.era = "modern"
    with pytest.raises(HttpStatus, match="answered with HTTP 404"):
        await call_say(manager)
    assert await call_say(manager) == "modern"


async def test_a_proxy_that_says_that_its_server_is_down_is_believed(
    changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    assert await call_say(manager) == "modern"
    changing.era = "down"
    with pytest.raises(HttpStatus):
        await call_say(manager)
    status = manager.status("one")
    assert status.state is State.FAILED
    assert status.cause == "answered with HTTP 503 Service Unavailable: an HTML page"
    changing.era = "modern"
    assert await call_say(manager) == "modern"
    assert manager.status("one").state is State.READY


async def test_an_invalid_retry_time_is_omitted(
    changing: EraSwitchingServer, manager: ConnectionManager
) -> None:
    assert await call_say(manager) == "modern"
    changing.era = "busy"
    with pytest.raises(Throttled) as exc_info:
        await call_say(manager)
    assert exc_info.value.retry_after is None
    assert exc_info.value.hint == "try again later"
