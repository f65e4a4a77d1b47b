"""A question from a server that no client can be asked, answered in a real browser."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

SERVER = Path(__file__).parents[2] / "servers/counting_server.py"


def call(url: str) -> str:
    """Call the tool that asks, as a program that cannot be asked."""
    headers = {"Accept": "*/*", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v1/tools/one_ask/call", b"{}", headers, method="POST")
    return json.loads(urllib.request.urlopen(request, timeout=60).read())["text"]


def count_questions(url: str) -> int:
    return len(json.loads(urllib.request.urlopen(f"{url}/api/v1/questions", timeout=60).read())["items"])


async def test_a_question_is_answered_on_the_page(chromium: Browser, tmp_path: Path) -> None:
    programs = ProgramStarter()
    one = {"command": sys.executable, "args": ["-I", "-S", str(SERVER), "browser"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"one": one}}))
    try:
        url = programs(
            sys.executable, "-m", "toolyard", "--data-dir", tmp_path, "serve", "--port", "{port}"
        ).url
        page = await chromium.new_page()
        calling = asyncio.create_task(asyncio.to_thread(call, url))
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(count_questions, url):
                await asyncio.sleep(0.05)
        await page.goto(f"{url}/ui/approvals")
        # The texts of a card are not at its edge, and the next heading is not at the card.
        card = await page.locator("#questions .card").bounding_box()
        text = await page.get_by_text("Asked during").bounding_box()
        heading = await page.get_by_role("heading", name="Needs approval").bounding_box()
        assert card is not None
        assert text is not None
        assert heading is not None
        assert text["x"] >= card["x"] + 8
        assert text["y"] >= card["y"] + 8
        assert heading["y"] >= card["y"] + card["height"] + 16
        await page.locator("input[name^='q-']").last.fill("Ann")
        await page.get_by_role("button", name="Send").click()
        assert json.loads(await calling) == {"action": "accept", "content": {"name": "Ann"}}
        await expect(page.get_by_text("Answer sent.")).to_be_visible()
        await page.close()
    finally:
        programs.stop()
