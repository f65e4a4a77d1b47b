"""The pages of the background process: links for approvals and questions, and the servers added in them."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Browser, expect
from tests.background.conftest import wait_until

if TYPE_CHECKING:
    from tests.background.conftest import Machine, StdioClient
    from tests.conftest import ListeningProgram

COUNTING_SERVER = Path(__file__).parent.parent / "servers/counting_server.py"

pytestmark = pytest.mark.asyncio(loop_scope="session")


def text_of(answer: Any) -> str:
    return json.dumps(answer["result"]) if "result" in answer else json.dumps(answer["error"])


def find_link(text: str) -> str:
    match = re.search(r"http://127\.0\.0\.1:\d+/open/[\w-]+/ui/approvals#[\w-]+", text)
    assert match is not None, text
    return match[0]


async def ask(client: StdioClient, method: str, params: Any = None) -> Any:
    return await asyncio.to_thread(client.ask, method, params)


async def test_a_call_that_needs_an_approval_ends_with_a_link_that_works(
    machine: Machine, chromium: Browser
) -> None:
    machine.env |= {"TOOLYARD_WRITE_TOOLS": "ask", "TOOLYARD_PORT": "0"}
    client = await asyncio.to_thread(lambda: machine.start().initialize())
    call = {"name": "demo_forget", "arguments": {}}
    refusal_text = text_of(await ask(client, "tools/call", call))
    assert "needs an approval" in refusal_text
    page = await (await chromium.new_context()).new_page()
    await page.goto(find_link(refusal_text))
    await expect(page.get_by_text("demo_forget").first).to_be_visible()
    await page.get_by_role("button", name="Allow once").click()
    await expect(page.get_by_role("button", name="Allow once")).to_have_count(0)
    assert "needs an approval" not in text_of(await ask(client, "tools/call", call))
    # It was approved once.
    assert "needs an approval" in text_of(await ask(client, "tools/call", call))


async def test_a_question_of_unknown_origin_is_answered_on_the_page(
    machine: Machine, chromium: Browser
) -> None:
    machine.env["TOOLYARD_PORT"] = "0"
    machine.write_config(one={"command": sys.executable, "args": ["-I", "-S", str(COUNTING_SERVER), "m"]})
    client = await asyncio.to_thread(lambda: machine.start().initialize())
    params = {"name": "one_ask", "arguments": {}, "_meta": {"progressToken": "p"}}
    id = await asyncio.to_thread(client.send, "tools/call", params)
    while True:
        message = await asyncio.to_thread(client.messages.get, timeout=60)
        if message.get("method") == "notifications/progress":
            break
    page = await (await chromium.new_context()).new_page()
    await page.goto(find_link(message["params"]["message"]))
    await page.get_by_role("textbox").first.fill("Ann")
    await page.get_by_role("textbox").first.press("Enter")
    assert "Ann" in text_of(await asyncio.to_thread(client.receive, id))


async def test_a_client_that_can_be_asked_needs_no_page(machine: Machine) -> None:
    machine.env["TOOLYARD_WRITE_TOOLS"] = "ask"
    client = await asyncio.to_thread(machine.start)
    capabilities = {"capabilities": {"elicitation": {}}}
    initialize = {
        "protocolVersion": "2025-06-18",
        "clientInfo": {"name": "test", "version": "1"},
        **capabilities,
    }
    await ask(client, "initialize", initialize)
    client.send("notifications/initialized", notify=True)
    id = client.send("tools/call", {"name": "demo_forget", "arguments": {}})
    question = await asyncio.to_thread(client.messages.get, timeout=60)
    assert question["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {}}}
    client.process.stdin.write(json.dumps(answer).encode() + b"\n")
    client.process.stdin.flush()
    assert "result" in await asyncio.to_thread(client.receive, id)
    assert "the pages are at" not in (machine.data / "background.log").read_text()


async def test_servers_added_in_the_pages_are_there_for_clients(
    machine: Machine, chromium: Browser, hostile_http: ListeningProgram
) -> None:
    machine.env["TOOLYARD_PORT"] = "0"
    client = await asyncio.to_thread(lambda: machine.start().initialize())
    assert "mcp_mine__echo" not in text_of(await ask(client, "tools/list"))
    result = await asyncio.to_thread(machine.run, "open", "--no-browser")
    page = await (await chromium.new_context()).new_page()
    await page.goto(result.stdout.strip())
    body = {"name": "S", "url": f"{hostile_http.url}/good/pages", "private_addresses": True}
    api = f"{result.stdout.partition('/open/')[0]}/api/v1"
    server = await (await page.request.post(f"{api}/servers", data=body)).json()
    draft = {"server_id": server["id"], "slug": "mine"}
    assert (await page.request.post(f"{api}/instances", data=draft)).status == 201
    # A client that is attached is told, and one that starts later gets it in its first list.
    await asyncio.to_thread(
        wait_until, lambda: client.ask("ping") and "notifications/tools/list_changed" in client.notifications
    )
    await asyncio.to_thread(wait_until, lambda: "mcp_mine__echo" in text_of(client.ask("tools/list")))
    call_text = await ask(client, "tools/call", {"name": "mcp_mine__echo", "arguments": {"text": "hi"}})
    assert call_text["result"]["content"][0]["text"] == "hi"
    assert (await asyncio.to_thread(machine.run, "stop")).returncode == 0
    later = await asyncio.to_thread(machine.start)
    assert "mcp_mine__echo" in text_of(await ask(later, "tools/list"))


async def test_where_people_sign_in_clients_have_the_servers_of_the_files_alone(machine: Machine) -> None:
    machine.env |= {"TOOLYARD_WRITE_TOOLS": "ask", "TOOLYARD_PEOPLE_MODE": "password", "TOOLYARD_PORT": "0"}
    client = await asyncio.to_thread(lambda: machine.start().initialize())
    refusal_text = text_of(await ask(client, "tools/call", {"name": "demo_forget", "arguments": {}}))
    assert "needs an approval" in refusal_text
    assert "http://" not in refusal_text
    assert not (machine.data / "toolyard.db").exists()
