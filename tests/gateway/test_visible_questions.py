"""Questions from servers reach clients with their hidden characters as escapes, or are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import aiohttp.web
import pytest
from tests.gateway.conftest import LegacyClient, ModernClient, next_message

HIDDEN = "Delete\u202e nothing\u200b?"
SHOWN_QUESTION = r"Delete\u202e nothing\u200b?"
FORM = {
    "message": HIDDEN,
    "requestedSchema": {
        "type": "object",
        "title": HIDDEN,
        "properties": {
            "a": {"type": "string", "title": HIDDEN},
            "b": {"type": "string", "enum": [HIDDEN, "x"]},
            "c": {"type": "string", "oneOf": [{"const": HIDDEN}, {"const": "x", "title": HIDDEN}]},
            "d": {"type": "array", "items": {"anyOf": [{"const": "x", "title": HIDDEN}]}},
            HIDDEN: {"type": "boolean"},
        },
    },
}
SHOWN_FORM = {
    "a": {"type": "string", "title": SHOWN_QUESTION},
    "b": {"type": "string", "enum": [HIDDEN, "x"], "enumNames": [SHOWN_QUESTION, "x"]},
    "c": {
        "type": "string",
        "oneOf": [{"const": HIDDEN, "title": SHOWN_QUESTION}, {"const": "x", "title": SHOWN_QUESTION}],
    },
    "d": {"type": "array", "items": {"anyOf": [{"const": "x", "title": SHOWN_QUESTION}]}},
    HIDDEN: {"type": "boolean", "title": SHOWN_QUESTION},
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
            arguments = message["params"]["arguments"]
            params = arguments.get("question", FORM)
            input_requests = {
                "q": {"method": arguments.get("method", "elicitation/create"), "params": params}
            }
            result = {"resultType": "input_required", "inputRequests": input_requests, "requestState": "s"}
    return aiohttp.web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


@pytest.fixture
async def asking_url() -> AsyncIterator[str]:
    app = aiohttp.web.Application()
    app.router.add_post("/mcp", asking_server)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    await runner.cleanup()


async def first_answer(era: str, http: aiohttp.ClientSession, url: str, arguments: dict[str, Any]) -> Any:
    """Return the question that a client gets during a call, or the response if it gets none."""
    capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
    if era == "modern":
        answer = (await ModernClient(http, url, capabilities).call("one_ask", arguments)).answer
        return next(iter(answer.get("result", {}).get("inputRequests", {}).values()), answer)
    client = LegacyClient(http, url, capabilities)
    await client.begin()
    message = client.message("tools/call", {"name": "one_ask", "arguments": arguments})
    async with http.post(client.url, json=message, headers=client.head("tools/call")) as response:
        if response.content_type == "text/event-stream":
            return await next_message(response)
        return await response.json()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_hidden_characters_in_a_servers_question_are_visible(
    open_site: Any, http: aiohttp.ClientSession, asking_url: str, era: str
) -> None:
    local = await open_site({"one": {"url": asking_url}})
    answer = await first_answer(era, http, f"{local.url}/mcp", {})
    assert answer["method"] == "elicitation/create"
    assert answer["params"]["message"] == SHOWN_QUESTION
    schema = {"type": "object", "title": SHOWN_QUESTION, "properties": SHOWN_FORM}
    assert answer["params"]["requestedSchema"] == schema


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("length", [1, 5_000])
async def test_hidden_characters_in_a_sampling_request_are_visible(
    open_site: Any, http: aiohttp.ClientSession, asking_url: str, era: str, length: int
) -> None:
    def request(text: str) -> dict[str, Any]:
        file = {"type": "resource", "resource": {"uri": "file:///a", "text": text}}
        content = [{"type": "text", "text": text}, file]
        result = {"type": "tool_result", "toolUseId": "1", "content": content, "structuredContent": [text]}
        use = {"type": "tool_use", "id": "1", "name": "t", "input": {text: [text]}}
        return {
            "maxTokens": 1,
            "systemPrompt": text,
            "messages": [
                {"role": "user", "content": {"type": "text", "text": text}},
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"type": "text", "text": text * length}, result]},
            ],
            "tools": [{"name": "t", "description": text, "inputSchema": {"type": "object", "title": text}}],
        }

    local = await open_site({"one": {"url": asking_url}})
    arguments = {"method": "sampling/createMessage", "question": request(HIDDEN)}
    answer = await first_answer(era, http, f"{local.url}/mcp", arguments)
    assert answer["method"] == "sampling/createMessage"
    answer["params"].pop("_meta", None)
    assert answer["params"] == request(SHOWN_QUESTION)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_server_sends_no_client_to_a_page_that_chats_refuse(
    open_site: Any, http: aiohttp.ClientSession, asking_url: str, era: str
) -> None:
    local = await open_site(
        {"one": {"url": asking_url, "privateAddresses": False}}, guard_allow=["127.0.0.1"]
    )

    async def ask(url: str) -> Any:
        question = {"mode": "url", "message": "Open", "url": url, "elicitationId": "1"}
        return await first_answer(era, http, f"{local.url}/mcp", {"question": question})

    for url in (
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://bank.example@evil.example/",
        "",
        "a\\b",
    ):
        assert "not http(s), or that contains a user name" in (await ask(url))["error"]["message"], url
    private = ("127.0.0.1:8080", "localhost", "[::1]", "2130706433", "169.254.169.254")
    for host in (*private, "router", "printer.local.", "wiki.corp.internal:8443", "nas.home.arpa"):
        assert "at a private address" in (await ask(f"http://{host}/"))["error"]["message"], host
    page_question = await ask("https://b\u00fccher.example/x")
    assert page_question["params"]["url"] == "https://xn--bcher-kva.example/x"
    page_question = await ask("https://example.com/\u202etxt.exe")
    assert page_question["params"]["url"] == "https://example.com/%E2%80%AEtxt.exe"


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_unreadable_question_is_refused(
    open_site: Any, http: aiohttp.ClientSession, asking_url: str, era: str
) -> None:
    local = await open_site({"one": {"url": asking_url}})
    for question, limit in (
        ({"message": "x" * 100_001}, "100,000"),
        ({"message": "x" * 1_000_001}, "1,000,000"),
    ):
        answer = await first_answer(era, http, f"{local.url}/mcp", {"question": {**FORM, **question}})
        assert f"more than {limit} characters" in answer["error"]["message"]
