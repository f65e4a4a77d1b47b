"""Servers that send more than can be answered: they are throttled, and others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

import aiohttp.web
import pytest
from tests.tool_calls import call_tool

from toolyard.catalog.listing_storage import MemoryListingStorage
from toolyard.clients import ConnectionManager
from toolyard.config.settings.table import Settings
from toolyard.core.composition import build_core
from toolyard.types.server import Configuration, HttpSpec, ProtocolEra, Server, Timeouts

Beside = Callable[..., AbstractAsyncContextManager[ConnectionManager]]

_REQUEST_COUNT = 300
"""More than may wait for an answer, and in three calls fewer than a connection may receive unsolicited."""


@dataclass
class Flood:
    """A legacy server that repeats one message very often before it answers a call, and reads no answers."""

    method: str
    url: str = ""
    taking: int = 0
    most: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def server(self) -> Server:
        patient = Timeouts(connect=60.0, silence=60.0, call=60.0)
        return Server("bad", HttpSpec(self.url), protocol=ProtocolEra.LEGACY, timeouts=patient)

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        if request.method != "POST":
            return aiohttp.web.Response(status=405)
        message = await request.json()
        method, id = message.get("method"), message.get("id")
        if method is None:
            await self._take_forever()
        if id is None:
            return aiohttp.web.Response(status=202)
        result: dict[str, Any] = {"tools": []}
        if method == "initialize":
            info = {"name": "flood", "version": "1"}
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        if method != "tools/call":
            return aiohttp.web.json_response({"jsonrpc": "2.0", "id": id, "result": result})
        return await self._pour(request, id)

    def _said(self, number: int) -> dict[str, Any]:
        is_notification = self.method.startswith("notifications/")
        return {"method": self.method} if is_notification else {"id": f"q{number}", "method": self.method}

    async def _take_forever(self) -> None:
        self.taking += 1
        self.most = max(self.most, self.taking)
        await self.over.wait()

    async def _pour(self, request: aiohttp.web.Request, id: Any) -> aiohttp.web.StreamResponse:
        stream = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for number in range(0, _REQUEST_COUNT, 100):
            await stream.write(b"".join(_event(self._said(number + each)) for each in range(100)))
        text = {"content": [{"type": "text", "text": "done"}]}
        await stream.write(_event({"id": id, "result": text}))
        await stream.write_eof()
        return stream


def _event(message: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", **message}).encode()


@contextlib.asynccontextmanager
async def flooding(method: str) -> AsyncIterator[Flood]:
    flood = Flood(method)
    app = aiohttp.web.Application()
    app.router.add_route("*", "/mcp", flood.answer)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    services = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await services.start()
    flood.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield flood
    finally:
        flood.over.set()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("method", "most"), [("ping", 1), ("sampling/createMessage", 65)], ids=["ping", "question"]
)
async def test_a_server_that_takes_no_answers_gets_few_at_a_time(
    method: str, most: int, open_manager: Beside
) -> None:
    async with flooding(method) as flood, open_manager(flood.server) as manager:
        result = await call_tool(manager, "bad", "say", {})
        assert result["content"][0]["text"] == "done"
        assert 0 < len(asyncio.all_tasks()) < 300
        assert flood.most <= most


class BlockedCatalogueStorage(MemoryListingStorage):
    """Writes only while it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.expired = 0

    async def expire(self, server_id: str) -> None:
        self.expired += 1
        await self.may.wait()
        await super().expire(server_id)


async def test_a_server_that_always_says_that_its_tools_changed_is_noted_once_and_once_more() -> None:
    storage = BlockedCatalogueStorage()
    async with flooding("notifications/tools/list_changed") as flood:
        core = build_core(
            Configuration({"bad": flood.server}),
            Settings(),
            data_dir=None,
            catalogue_storage=storage,
        )
        try:
            for _ in range(2):
                await call_tool(core.manager, "bad", "say", {})
            assert storage.expired == 1
            # Notifications after the first are merged into one, which follows a second later.
            async with asyncio.timeout(60):
                while not core.updates.pending_list_changes["bad"]:
                    await asyncio.sleep(0.02)
                storage.may.set()
                while core.updates.pending_list_changes:
                    await asyncio.sleep(0.02)
            assert storage.expired == 2
            await call_tool(core.manager, "bad", "say", {})
            async with asyncio.timeout(60):
                while storage.expired == 2 or core.updates.pending_list_changes:
                    await asyncio.sleep(0.02)
            assert core.updates.pending_list_changes == {}
        finally:
            await core.close()
