"""One process of a stdio server, as clients and a browser see it at the program ``toolyard serve``."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.conftest import ProgramStarter
from tests.gateway.conftest import LegacyClient, ModernClient
from tests.journeys.test_shared_processes import ANN, FORMS, entry, processes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

CAPABILITIES: tuple[dict[str, Any], ...] = ({}, FORMS, {**FORMS, "sampling": {}, "roots": {}})


@pytest_asyncio.fixture(loop_scope="session")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(120)) as session:
        yield session


async def read_last_call(http: aiohttp.ClientSession, url: str) -> str:
    """Return the time when the last call of the server began."""
    async with http.get(f"{url}/api/v1/status") as answer:
        return (await answer.json())["items"][0]["last_call"]


async def test_clients_share_one_process_and_a_question_of_two_calls_is_answered_in_the_browser(
    http: aiohttp.ClientSession, start_program: ProgramStarter, chromium: Browser, tmp_path: Path
) -> None:
    data, marker = tmp_path / "data", f"marker-{tmp_path}"
    data.mkdir()
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"one": entry(marker)}}))
    (data / "toolyard.toml").write_text('write_tools = "allow"\n')
    words = (sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}")
    url = start_program(*words, HOME=str(tmp_path)).url

    # Two eras, three sets of capabilities, the API: one process, and one state.
    clients: list[ModernClient] = [ModernClient(http, f"{url}/mcp", each) for each in CAPABILITIES]
    for each in CAPABILITIES:
        client = LegacyClient(http, f"{url}/mcp", each)
        await client.begin()
        clients.append(client)
    while not (await clients[0].ask("tools/list")).result["tools"]:
        await asyncio.sleep(0.1)
    counts = [json.loads((await client.call("one_count")).text) for client in clients]
    async with http.post(f"{url}/api/v1/tools/one_count/call", json={"arguments": {}}) as answer:
        counts.append(json.loads((await answer.json())["text"]))
    assert [each["count"] for each in counts] == list(range(1, 8))
    (pid,) = processes(marker)
    assert {each["pid"] for each in counts} == {pid}

    # Status, page and command show who uses the process, also clients without a session, by their names.
    client_meta = {"io.modelcontextprotocol/clientInfo": {"name": "editor", "version": "3"}}
    assert (await clients[0].ask("tools/call", {"name": "one_count", "arguments": {}}, **client_meta)).result
    users = ["a client", "editor 3", "old 1", "old 1", "old 1"]
    async with http.get(f"{url}/api/v1/status") as answer:
        shown_processes = (await answer.json())["items"][0]["processes"]
    assert shown_processes == [{"pid": pid, "users": users, "launch": None}]
    command = (sys.executable, "-m", "toolyard", "--remote", url, "servers", "--json")
    process_listing = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True
    )
    assert json.loads(process_listing.stdout)[0]["processes"] == shown_processes

    context = await chromium.new_context(base_url=url)
    page = await context.new_page()
    await page.goto("/ui/admin/mcp/files/one")
    await expect(page.get_by_text(f"{pid}, used by {', '.join(users)}")).to_be_visible()

    # A question of one call goes to its caller, and not to the page.
    other_client, holding = clients[1], ModernClient(http, f"{url}/mcp", FORMS)
    result = (await other_client.call("one_ask")).result
    await page.goto("/ui/approvals")
    await expect(page.get_by_role("heading", name="Approvals", exact=True)).to_be_visible()
    await expect(page.get_by_text("is asking")).to_have_count(0)
    retry_params = {"inputResponses": {"input-1": ANN}, "requestState": result["requestState"]}
    assert json.loads((await other_client.call("one_ask", **retry_params)).text) == ANN

    # A question of two calls goes to the page, and to neither client.
    before = await read_last_call(http, url)
    task = asyncio.create_task(holding.call("one_hold"))
    while await read_last_call(http, url) == before:
        await asyncio.sleep(0.05)
    pending_task = asyncio.create_task(other_client.call("one_ask"))
    # The open page shows it by itself.
    await expect(page.get_by_role("link", name="Approvals 1 waiting for you")).to_be_visible()
    question = page.locator("#questions li")
    await expect(question).to_contain_text("one is asking")
    for call in ("hold (a client)", "ask (a client)"):
        await expect(question).to_contain_text(call)
    # A second one comes while the first is being answered, which keeps the focus and what was typed.
    field = question.first.locator("[name^='q-']")
    await field.press_sequentially("An")
    second = asyncio.create_task(other_client.call("one_ask"))
    await expect(question).to_have_count(2)
    await expect(field).to_be_focused()
    await page.keyboard.type("n")
    # The second is answered elsewhere, and leaves the page.
    async with http.get(f"{url}/api/v1/questions") as answer:
        newer = (await answer.json())["items"][1]["id"]
    async with http.post(f"{url}/api/v1/questions/{newer}", json={"action": "decline"}) as answer:
        assert answer.status == 204
    assert json.loads((await second).text) == {"action": "decline"}
    await expect(question).to_have_count(1)
    await expect(field).to_be_focused()
    await expect(field).to_have_value("Ann")
    await question.get_by_role("button", name="Send", exact=True).click()
    assert json.loads((await pending_task).text) == ANN
    await expect(page.get_by_role("heading", name="Questions")).to_be_hidden()
    await clients[0].call("one_release")
    assert json.loads((await task).text) == "released"
    assert processes(marker) == [pid]
    await context.close()
