"""Shapes that hardly any message has: each gets its answer, and nobody else is disturbed."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import (
    HERE,
    LONG_LIST_DEADLINE,
    LegacyClient,
    ModernClient,
    next_message,
    passthrough_entry,
)
from tests.web.conftest import InProcessApp

STRANGE = {"command": sys.executable, "args": ["-I", "-S", str(HERE / "unusual_messages_server.py")]}


@pytest.fixture
async def services(open_site: Any) -> InProcessApp:
    return await open_site(
        {"one": passthrough_entry("one"), "strange": STRANGE, "dead": {"command": "/does/not/exist"}},
        list_deadline=LONG_LIST_DEADLINE,
    )


async def test_a_call_at_the_address_of_a_dead_server_says_why(
    services: InProcessApp, http: aiohttp.ClientSession
) -> None:
    reply = await ModernClient(http, f"{services.url}/mcp/servers/dead").call("any")
    assert (reply.status, reply.error["code"], reply.error["data"]["kind"]) == (200, -32603, "unreachable")


async def test_prompts_without_a_name_are_left_out(
    services: InProcessApp, http: aiohttp.ClientSession
) -> None:
    prompts = await ModernClient(http, f"{services.url}/mcp").ask("prompts/list")
    assert [each["name"] for each in prompts.result["prompts"]] == ["one_hello", "strange_plain"]


async def test_no_uri_takes_long_to_be_placed(services: InProcessApp, http: aiohttp.ClientSession) -> None:
    client = ModernClient(http, f"{services.url}/mcp")
    # There are more ways to lay this over the server's template than anybody could try.
    reply = await client.ask("resources/read", {"uri": "strange://" + "/" * 4000})
    assert reply.error["message"] == "Resource not found"
    reply = await client.ask("resources/read", {"uri": "strange://" + "/" * 4000 + "end"})
    assert reply.result["contents"][0]["text"] == "read"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/servers/strange"])
async def test_a_mirrored_parameter_must_agree_with_its_header(
    services: InProcessApp, http: aiohttp.ClientSession, path: str
) -> None:
    client = ModernClient(http, f"{services.url}{path}")
    name = "regional" if "servers" in path else "strange_regional"
    params = {"name": name, "arguments": {"region": "eu"}}
    good = {**client.head("tools/call", params), "Mcp-Param-Region": "eu"}
    assert (await client.send(client.message("tools/call", params), good)).text == "done"
    for wrong in ({"Mcp-Param-Region": "us"}, {"Mcp-Param-Region": None}):
        head = {key: value for key, value in {**good, **wrong}.items() if value is not None}
        reply = await client.send(client.message("tools/call", params), head)
        assert (reply.status, reply.error["code"]) == (400, -32020), wrong
        assert reply.error["message"].startswith("Header mismatch: the header Mcp-Param-Region")


@pytest.mark.parametrize("depth", [200, 500, 975])
async def test_deeply_nested_values_pass_both_ways(
    services: InProcessApp, http: aiohttp.ClientSession, depth: int
) -> None:
    nested_json = "[" * depth + "]" * depth
    for client in (ModernClient(http, f"{services.url}/mcp"), LegacyClient(http, f"{services.url}/mcp")):
        for name, argument in (("strange_deep", str(depth)), ("strange_echo", nested_json)):
            params = {"name": name, "arguments": {"depth": 0}}
            text = json.dumps(client.message("tools/call", params)).replace('h": 0', f'h": {argument}')
            head = client.head("tools/call", params)
            # Not read here: that has its limits too.
            async with http.post(client.url, data=text.encode(), headers=head) as response:
                body = await response.text()
            assert (nested_json if name == "strange_deep" else '"text":"done"') in body


async def test_an_event_that_has_no_number_is_of_no_stream(
    services: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    head = f"GET /mcp HTTP/1.1\r\nHost: {services.url.removeprefix('http://')}\r\nConnection: close\r\n"
    head += f"Mcp-Session-Id: {client.headers['Mcp-Session-Id']}\r\nLast-Event-ID: own/\xb2\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(services.url.rpartition(":")[2]))
    writer.write(head.encode("latin-1"))
    # Not 404, by which a client would know that its session is over.
    assert b" 410 " in await asyncio.wait_for(reader.readline(), 30)
    writer.close()


async def test_any_number_of_calls_waits_in_one_session(services: InProcessApp) -> None:
    many = 100
    connector, jar = aiohttp.TCPConnector(limit=0), aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as http, asyncio.timeout(60):
        client = LegacyClient(http, f"{services.url}/mcp")
        await client.begin()
        # So that the server is there: a stream begins without waiting for it.
        await client.call("strange_echo")
        params, head = {"name": "strange_wait", "arguments": {}}, client.head("tools/call")
        calls = [json.dumps(client.message("tools/call", params)).encode() for _ in range(many)]
        results = await asyncio.gather(*(http.post(client.url, data=call, headers=head) for call in calls))
        await client.call("strange_done")
        bodies = await asyncio.gather(*(each.read() for each in results))
    assert sum(b'"text":"done"' in body for body in bodies) == many


async def test_a_client_that_comes_back_before_it_is_missed_gets_its_answer(
    services: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{services.url}/mcp")
    await client.begin()
    message = client.message("tools/call", {"name": "strange_wait", "arguments": {}})
    head = client.head("tools/call")
    async with http.post(client.url, data=json.dumps(message).encode(), headers=head) as before:
        event = (await before.content.readline()).decode().strip().removeprefix("id: ")
        again = {**client.head(""), "Accept": "text/event-stream", "Last-Event-ID": event}
        async with http.get(client.url, headers=again) as after:
            # Each message goes one way only: this one ends now.
            await before.read()
            await client.call("strange_done")
            answer = await next_message(after)
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (message["id"], "done")
