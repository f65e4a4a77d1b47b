"""Details of the pages and of HTTP, at the program ``toolyard serve`` and in a real browser."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.conftest import ROOT, ProgramStarter
from tests.journeys.test_add_server import add

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}


def write_tools(file: Path, *descriptions: str) -> None:
    """Write the tools of the server, and its icon."""
    tools = [
        {"name": f"tool{at}", "description": text, "inputSchema": {"type": "object"}}
        for at, text in enumerate(descriptions)
    ]
    icons = [{"src": f"data:image/png;base64,{PNG}"}]
    file.write_text(json.dumps({"tools": tools, "icons": icons}))


@pytest.fixture
def url(start_program: ProgramStarter, tmp_path: Path) -> str:
    words = (sys.executable, "-m", "toolyard", "--data-dir", tmp_path, "serve", "--port", "{port}")
    return start_program(*words, HOME=str(tmp_path)).url


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, url: str) -> AsyncIterator[Page]:
    context = await chromium.new_context(base_url=url)
    context.set_default_timeout(60_000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    await context.close()
    assert complaints == []


async def test_a_server_shows_its_icon_its_changes_and_its_log(
    page: Page, url: str, start_program: ProgramStarter, tmp_path: Path
) -> None:
    file = tmp_path / "tools.json"
    write_tools(file, "Reads.", "Counts.")
    program = ROOT / "tests/servers/changing_server.py"
    server = start_program(sys.executable, "-I", program, file, "{port}").url
    foreign: list[str] = []
    page.on("request", lambda request: None if request.url.startswith(url) else foreign.append(request.url))
    await page.goto("/ui/admin/mcp/new")
    await add(page, f"{server}/mcp")
    await expect(page.locator("#flash")).to_contain_text("was added.")
    await expect(page.get_by_role("link", name="tool0", exact=True)).to_be_visible()

    # Its icon comes from our origin.
    for path in ("/ui/mcp", "/ui/admin/mcp", "/ui/chat/console"):
        await page.goto(path)
        icon = page.locator("img.server-icon").first
        await expect(icon).to_be_visible()
        assert await icon.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
    assert foreign == []

    # A changed tool is announced on the home page and in lists.
    await page.goto("/ui/mcp")
    write_tools(file, "Reads. And sends it somewhere.", "Counts.")
    await page.get_by_role("button", name="Test").click()
    await expect(page.get_by_role("link", name="1 tool changed")).to_be_visible()
    await page.goto("/ui/")
    await expect(page.locator("main")).to_contain_text("1 tool of “changing” changed")
    await expect(page.locator("main")).to_contain_text("It is blocked until the change is accepted.")

    # The audit log has words and names, and filters.
    await page.goto("/ui/admin/audit")
    rows = page.locator("tbody tr")
    await expect(rows.filter(has_text="Created an instance")).to_have_count(1)
    assert "instance." not in await page.locator("tbody").inner_text()
    await page.get_by_label("Server", exact=True).select_option("changing")
    await page.get_by_label("Outcome", exact=True).select_option("Failed or refused")
    await expect(rows).to_have_count(0)
    await page.get_by_label("Outcome", exact=True).select_option("Succeeded")
    await page.get_by_label("When", exact=True).select_option("Last hour")
    await page.get_by_label("Person", exact=True).select_option("local user")
    await expect(rows.filter(has_text="Added a server")).to_have_count(1)


async def test_an_address_that_does_not_exist_keeps_the_navigation(page: Page) -> None:
    answer = await page.goto("/nowhere")
    assert answer is not None
    assert answer.status == 404
    await page.get_by_role("link", name="Instances").click()
    await expect(page).to_have_url(re.compile("/ui/mcp$"))


async def test_answers_are_compressed_where_they_may_be(url: str) -> None:
    async with aiohttp.ClientSession(base_url=url, auto_decompress=False) as http:
        head = {"Accept-Encoding": "gzip"}
        for path in ("/ui/", "/api/v1/openapi.json", "/static/app.css"):
            async with http.head(path) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
            async with http.get(path, headers=head) as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
        async with http.get("/api/v1/events", headers=head) as answer:
            assert answer.content_type == "text/event-stream"
            assert "Content-Encoding" not in answer.headers
        accept = {**head, "Accept": "application/json, text/event-stream"}
        async with http.post("/mcp", json=INITIALIZE, headers=accept) as answer:
            assert answer.status == 200
            assert "Content-Encoding" not in answer.headers
    values = set[str]()
    async with aiohttp.ClientSession(base_url=url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        for _ in range(3):
            async with http.get("/ui/admin/mcp/new") as answer:
                match = re.search(r'name="csrf" value="(\w+)"', await answer.text())
                assert match is not None
                values.add(match[1])
    assert len(values) == 3
