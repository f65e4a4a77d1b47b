"""A gateway to talk to, and clients of both eras that speak bare messages."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.web.conftest import InProcessApp, open_site, serve

__all__ = ["LegacyClient", "ModernClient", "Reply", "next_message", "open_site", "passthrough_entry", "serve"]

HERE = Path(__file__).parent
LONG_LIST_DEADLINE = 60.0
"""For lists that need every server, of which some are started by the list: two seconds may be too short on a
busy machine."""
META = "io.modelcontextprotocol"
NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


# What the passthrough server publishes and answers, letter for letter.
ODD_TOOL = (
    '{"zeta":1,"name":"odd","inputSchema":{"type":"object","properties":{"z":{"maximum":'
    '123456789012345678901234567890},"a":{"type":"string"}},"$defs":{"b":{},"a":{}}},"alpha":{"y":[1,null],"x":2}}'
)
ODD_RESULT = (
    '{"zeta":[18446744073709551616,1.5],"content":[{"type":"text","text":"odd","annotations":{"b":1,"a":2}}],'
    '"structuredContent":{"b":123456789012345678901234567890,"a":"ä"},"_meta":{"x/y":1}}'
)


LARGE = {"command": sys.executable, "args": ["-I", "-S", str(HERE / "large_results_server.py")]}
"""The entry of a server that answers with as much as it is asked for."""


def passthrough_entry(name: str, marker: Path | None = None, **more: Any) -> dict[str, Any]:
    """The entry of a passthrough server."""
    words = [
        "-I",
        "-S",
        str(HERE / "passthrough_server.py"),
        name,
        *([] if marker is None else [str(marker)]),
    ]
    return {"command": sys.executable, "args": words, **more}


@dataclass
class Reply:
    """What came back for one request: the messages of its stream, or the one of its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    messages: list[Any]

    @property
    def answer(self) -> Any:
        return self.messages[-1]

    @property
    def result(self) -> Any:
        assert "result" in self.answer, self.answer
        return self.answer["result"]

    @property
    def error(self) -> Any:
        assert "error" in self.answer, self.answer
        return self.answer["error"]

    @property
    def text(self) -> str:
        return self.result["content"][0]["text"]


def events(body: bytes) -> list[Any]:
    return [
        json.loads(line.removeprefix(b"data: "))
        for line in body.split(b"\n")
        if line.startswith(b"data: ") and line != b"data: "
    ]


@dataclass
class ModernClient:
    """A client of the modern era."""

    session: aiohttp.ClientSession
    url: str
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    last: int = 0

    def message(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        self.last += 1
        stamp = {
            f"{META}/protocolVersion": "2026-07-28",
            f"{META}/clientCapabilities": self.capabilities,
            **meta,
        }
        full = {**(params or {}), "_meta": stamp}
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": full}

    def head(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, str]:
        head = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **self.headers,
        }
        if method in NAME_PARAMS and params is not None:
            head["Mcp-Name"] = str(params[NAME_PARAMS[method]])
        return head

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> Reply:
        return await self.send(self.message(method, params, **meta), self.head(method, params))

    async def send(self, message: Any, head: Mapping[str, str]) -> Reply:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with self.session.post(self.url, data=data, headers=head) as response:
            body = await response.read()
            if response.content_type == "text/event-stream":
                messages = events(body)
            else:
                messages = [json.loads(body)] if body else []
            return Reply(response.status, response.headers, body, messages)

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Reply:
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **more})


@dataclass
class LegacyClient(ModernClient):
    """A client of the legacy era, with a session once it has begun."""

    version: str = "2025-11-25"

    async def begin(self) -> Reply:
        params = {
            "protocolVersion": self.version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": "old", "version": "1"},
        }
        reply = await self.ask("initialize", params)
        if "Mcp-Session-Id" in reply.headers:
            self.headers = {**self.headers, "Mcp-Session-Id": reply.headers["Mcp-Session-Id"]}
        assert (await self.tell("notifications/initialized")).status == 202
        return reply

    def message(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        self.last += 1
        full = {**(params or {}), **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": self.last, "method": method, "params": full}

    def head(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, str]:
        head = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
        }
        if method != "initialize":
            head["MCP-Protocol-Version"] = self.version
        return head

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> Reply:
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        return await self.send(message, self.head(method))


async def next_message(response: aiohttp.ClientResponse) -> Any:
    """The next message of a stream."""
    async with asyncio.timeout(120):
        async for line in response.content:
            if line.startswith(b"data: {"):
                return json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended")


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(120)) as session:
        yield session


@pytest.fixture
async def two_server_site(open_site: Any) -> InProcessApp:
    """Two passthrough servers, in none mode."""
    return await open_site(
        {"one": passthrough_entry("one"), "two": passthrough_entry("two", denyTools=["secret"])},
        list_deadline=LONG_LIST_DEADLINE,
    )
