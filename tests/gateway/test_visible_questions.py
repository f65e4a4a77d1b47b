"""Questions of servers reach clients with their hidden characters as escapes."""

from __future__ import annotations

from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import Modern, Old, next_message

HIDDEN = "Delete\u202e nothing\u200b?"
SHOWN = r"Delete\u202e nothing\u200b?"
FORM = {
    "message": HIDDEN,
    "requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "title": HIDDEN}}},
}


async def asking_server(request: aiohttp.web.Request) -> aiohttp.web.Response:
    """A modern server whose tool asks a question with hidden characters."""
    message = await request.json()
    result: dict[str, Any] = {"resultType": "complete"}
    match message["method"]:
        case "server/discover":
            result |= {
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "asking", "version": "1"},
            }
        case "tools/list":
            tool = {"name": "ask", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
            result |= {"tools": [tool], "ttlMs": 60_000, "cacheScope": "private"}
        case _:
            asked = {"q": {"method": "elicitation/create", "params": FORM}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_hidden_characters_in_a_servers_question_are_visible(
    open_site: Any, http: aiohttp.ClientSession, era: str
) -> None:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", asking_server)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    local = await open_site({"one": {"url": f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"}})
    capabilities = {"elicitation": {"form": {}}}
    try:
        if era == "modern":
            reply = await Modern(http, f"{local.url}/mcp", capabilities).call("one_ask", {})
            ((_, asked),) = reply.result["inputRequests"].items()
        else:
            client = Old(http, f"{local.url}/mcp", capabilities)
            await client.begin()
            message = client.message("tools/call", {"name": "one_ask", "arguments": {}})
            async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
                asked = await next_message(response)
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == SHOWN
        assert asked["params"]["requestedSchema"]["properties"]["a"]["title"] == SHOWN
    finally:
        await runner.cleanup()
