"""Several messages in one request, which the revision 2025-03-26 has and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import LegacyClient
from tests.web.conftest import InProcessApp

BATCHES = "2025-03-26"


async def send_messages(client: LegacyClient, messages: Any) -> tuple[int, Any]:
    reply = await client.send(messages, client.head("tools/call"))
    return reply.status, reply.messages[0] if reply.messages else None


def calls(client: LegacyClient, *names: str) -> list[dict[str, Any]]:
    return [client.message("tools/call", {"name": name, "arguments": {}}) for name in names]


@pytest.mark.parametrize("session", [True, False], ids=["session", "no session"])
async def test_messages_that_come_together_are_answered_together(
    two_server_site: InProcessApp, http: aiohttp.ClientSession, session: bool
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=BATCHES)
    if session:
        await client.begin()
    notification = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    wrong = client.message("no/such")
    status, answers = await send_messages(
        client, [*calls(client, "one_odd", "two_told"), notification, wrong]
    )
    assert status == 200
    by_id = {each["id"]: each for each in answers}
    assert len(answers) == len(by_id) == 3
    assert by_id.pop(wrong["id"])["error"]["code"] == -32601
    texts = [each["result"]["content"][0]["text"] for _, each in sorted(by_id.items())]
    assert texts == ["odd", '{"elicitation": {"form": {}, "url": {}}}']


async def test_where_nothing_is_asked_nothing_is_answered(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=BATCHES)
    await client.begin()
    notification = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    assert await send_messages(client, [notification, {"jsonrpc": "2.0", "id": 7, "result": {}}]) == (
        202,
        None,
    )


async def test_one_of_them_can_be_cancelled(
    two_server_site: InProcessApp, http: aiohttp.ClientSession
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=BATCHES)
    await client.begin()
    call_batch, odd = calls(client, "one_wait", "one_odd")
    both = asyncio.create_task(send_messages(client, [call_batch, odd]))
    await client.tell("notifications/cancelled", {"requestId": call_batch["id"]})
    status, answers = await both
    assert (status, [each["id"] for each in answers]) == (200, [odd["id"]])


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
async def test_other_revisions_have_no_such_thing(
    two_server_site: InProcessApp, http: aiohttp.ClientSession, version: str
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=version)
    await client.begin()
    status, answer = await send_messages(client, calls(client, "one_odd"))
    assert (status, answer["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("wrong", ["nothing", "too many", "a number", "the handshake"])
async def test_an_invalid_batch_is_refused_whole(
    two_server_site: InProcessApp, http: aiohttp.ClientSession, wrong: str
) -> None:
    client = LegacyClient(http, f"{two_server_site.url}/mcp", version=BATCHES)
    await client.begin()
    messages: dict[str, Any] = {
        "nothing": [],
        "too many": calls(client, *["one_odd"] * 101),
        "a number": [*calls(client, "one_odd"), 3],
        "the handshake": [client.message("initialize", {"protocolVersion": BATCHES})],
    }
    status, answer = await send_messages(client, messages[wrong])
    assert (status, answer["error"]["code"]) == (400, -32600)
