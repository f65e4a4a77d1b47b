"""A chat says each thing once, offers no more tools than models accept, and shows who waits for whom.

The model is scripted; ``toolyard serve``, the processes of the servers and the browser are real.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from tests.conftest import ROOT, ListeningProgram, ProgramStarter
from tests.journeys.test_chat import ChatWindow

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

SERVERS = ROOT / "tests/servers"
TOOL_COUNT = 732
FAILED_LISTING = "The tools of dead cannot be listed: exited with code 3."
SEARCH_HINT = "The model finds tools by search"
READ_ONLY = {"readOnlyHint": True}


@dataclass
class QuietChat:
    """A chat in a browser, at a Toolyard with many tools and a server that fails."""

    url: str
    chat: ChatWindow
    model: ListeningProgram

    async def count_offered_tools(self) -> list[int]:
        """Return how many tools each request offered to the model."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.model.url}/journal") as answer:
            return [len(each["tools"] or []) for each in await answer.json()]

    async def export(self) -> str:
        """Return the exported chat."""
        chat = self.chat.page.url.partition("/ui/chat/")[2].partition("#")[0].partition("?")[0]
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.url}/api/v1/chats/{chat}/export") as answer,
        ):
            return await answer.text()


@pytest_asyncio.fixture(loop_scope="session")
async def quiet(
    chromium: Browser, start_program: ProgramStarter, model_program: ListeningProgram, tmp_path: Path
) -> AsyncIterator[QuietChat]:
    tools: list[dict[str, Any]] = [
        {"name": f"tool{number}", "inputSchema": {"type": "object"}, "annotations": READ_ONLY}
        for number in range(TOOL_COUNT)
    ]
    tools.append({"name": "write", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": False}})
    (tmp_path / "tools.json").write_text(json.dumps({"tools": tools}))
    programs = {
        "many": [str(SERVERS / "changing_server.py"), str(tmp_path / "tools.json")],
        "asking": [str(SERVERS / "counting_server.py"), f"marker-{tmp_path}"],
        "dead": ["-c", "raise SystemExit(3)"],
    }
    data = tmp_path / "data"
    data.mkdir()
    servers = {
        name: {"command": sys.executable, "args": ["-I", "-S", *words]} for name, words in programs.items()
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (data / "toolyard.toml").write_text(
        'write_tools = "ask"\nchat_titles = false\n[models.fake]\nmodel = "openai:fake-1"\n'
        f'base_url = "{model_program.url}/v1"\napi_key = "good"\n'
    )
    words = (sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}")
    url = start_program(*words, HOME=str(tmp_path)).url
    chat = await ChatWindow.open(chromium, url)
    yield QuietChat(url, chat, model_program)
    assert chat.said == []
    await chat.context.close()


async def test_a_chat_says_each_thing_once_and_offers_tools_by_search(quiet: QuietChat) -> None:
    chat = quiet.chat
    await chat.say("say one")
    await chat.ended()
    await expect(chat.last).to_contain_text(FAILED_LISTING)
    await expect(chat.last).to_contain_text(SEARCH_HINT)
    await chat.say("say two")
    await chat.ended()
    await expect(chat.last).not_to_contain_text("cannot be listed")
    await expect(chat.last).not_to_contain_text(SEARCH_HINT)
    assert await quiet.count_offered_tools() == [5, 5]
    markdown = await quiet.export()
    assert markdown.count("cannot be listed") == markdown.count("finds tools by search") == 1
    # No server needs a new sign-in: nothing asks for one.
    await expect(chat.page.locator("#reconnect .alert")).to_have_count(0)


async def test_a_question_and_an_approval_show_their_server_and_scope(quiet: QuietChat) -> None:
    chat, page = quiet.chat, quiet.chat.page
    entry = page.locator(".chat-list .current")
    await chat.say('call tools_call {"name": "asking_ask", "arguments": {}}', "then", "say Asked.")
    await expect(chat.last.locator(".turn-foot")).to_have_text("Waiting for you")
    await expect(entry).to_contain_text("Waiting for you")
    await page.locator(".question").get_by_role("textbox").fill("Ann")
    await page.locator(".question").get_by_role("button", name="Send").last.click()
    await chat.ended()
    await expect(chat.last.locator(".md").last).to_have_text("Asked.")
    await expect(entry).not_to_contain_text("Waiting for you")

    write = 'call tools_call {"name": "many_write", "arguments": {}}'
    await chat.say(write, "then", "say Written.")
    for reach in ("Allow for this chat, 7 days", "in all chats and clients"):
        await expect(chat.last.get_by_role("button", name=reach).first).to_be_visible()
    await chat.last.get_by_role("button", name="Always allow this tool of many until").click()
    await chat.ended()
    await expect(chat.last.locator(".md").last).to_have_text("Written.")
    # It applies where it said: in another chat, too.
    await page.goto("/ui/chat")
    await chat.say(write, "then", "say Written again.")
    await chat.ended()
    await expect(chat.last.locator(".md").last).to_have_text("Written again.")


async def test_an_answer_that_broke_off_is_not_a_model_that_failed(quiet: QuietChat) -> None:
    chat = quiet.chat
    await chat.say("say Half an answer", "fault die")
    await chat.ended()
    await expect(chat.last).to_contain_text("Half an answer")
    await expect(chat.last.locator(".alert strong")).to_have_text("The answer is incomplete")
