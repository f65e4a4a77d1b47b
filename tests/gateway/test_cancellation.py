"""A legacy client takes a request back, also where that overtakes the request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LegacyClient, passthrough_entry
from tests.web.conftest import InProcessApp
from yarl import URL

from toolyard.gateway.incoming_request import CancellableRequests


async def begin_session(services: InProcessApp, http: aiohttp.ClientSession) -> LegacyClient:
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    assert (await client.call("one_odd")).result
    return client


async def test_a_request_that_its_cancellation_overtook_is_not_begun(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services: InProcessApp = await open_site({"one": passthrough_entry("one")})
    client = await begin_session(services, http)
    body = json.dumps(client.message("tools/call", {"name": "one_wait", "arguments": {}})).encode()
    head = {
        **client.head("tools/call"),
        "Host": str(URL(services.url).authority),
        "Content-Length": len(body),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(services.url).port)
    try:
        # The last byte of the request is still on its way when the cancellation comes on another connection.
        writer.write(f"POST /mcp HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode() + body[:-1])
        await writer.drain()
        assert (await client.tell("notifications/cancelled", {"requestId": client.last})).status == 202
        writer.write(body[-1:])
        async with asyncio.timeout(30):
            answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"text/event-stream" in answer
    assert b"jsonrpc" not in answer
    # It counted for that one request.
    assert (await client.call("one_odd")).result


async def test_a_cancellation_counts_in_its_own_session_only(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services: InProcessApp = await open_site({"one": passthrough_entry("one")})
    one, two = await begin_session(services, http), await begin_session(services, http)
    assert one.last == two.last
    await one.tell("notifications/cancelled", {"requestId": one.last + 1})
    assert (await two.call("one_odd")).result
    assert (await one.call("one_odd")).messages == []


async def test_a_late_cancellation_does_not_affect_a_reused_id(
    open_site: Any, http: aiohttp.ClientSession
) -> None:
    services: InProcessApp = await open_site({"one": passthrough_entry("one")})
    client = await begin_session(services, http)
    await client.tell("notifications/cancelled", {"requestId": client.last})
    client.last -= 1
    assert (await client.call("one_odd")).result


async def test_a_strange_id_is_ignored(open_site: Any, http: aiohttp.ClientSession) -> None:
    services: InProcessApp = await open_site({"one": passthrough_entry("one")})
    client = await begin_session(services, http)
    for id in (None, True, 1.5, [], {}, "x" * 10_000, 10**400):
        assert (await client.tell("notifications/cancelled", {"requestId": id})).status == 202
    assert (await client.call("one_odd")).result


async def test_a_flood_of_cancellations_is_bounded_and_old_ones_expire() -> None:
    task = asyncio.ensure_future(asyncio.sleep(0))
    cancellable_requests = CancellableRequests()
    for number in range(10_000):
        cancellable_requests.cancel(number)
        cancellable_requests.cancel(f"{number}" * 100)
    cancellable_requests.begin(0, task)
    cancellable_requests.begin("9999" * 100, task)
    with pytest.raises(asyncio.CancelledError):
        cancellable_requests.begin(9_999, task)
    assert not task.cancelled()
    impatient = CancellableRequests(early_cancellation_seconds=0.0)
    impatient.cancel(9_998)
    impatient.begin(9_998, task)
    await task
