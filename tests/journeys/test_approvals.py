"""Approvals in a real browser: read, compared with the last time, given for a while, and revoked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.conftest import ProgramStarter
from tests.web.pages.test_browser import window

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent


@dataclass
class AskingYard:
    """A real ``toolyard serve`` whose tools that write need an approval, with a scripted model."""

    url: str


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingYard]:
    data, programs = tmp_path_factory.mktemp("approvals"), ProgramStarter()
    model = programs(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}")
    arguments = ["-I", "-m", "toolyard.cli.playground_server"]
    entry = {"label": "Playground", "command": sys.executable, "args": arguments}
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"playground": entry}}), "utf-8")
    (data / "toolyard.toml").write_text(
        'write_tools = "ask"\napproval_days = 14\n[models.fake]\nmodel = "openai:fake-1"\n'
        f'base_url = "{model.url}/v1"\napi_key = "good"\n',
        "utf-8",
    )
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield AskingYard(server_program.url)
    programs.stop()


async def ask(page: Page, text: str) -> None:
    """Have the model note a text in a new chat, which needs an approval."""
    await page.goto("/ui/chat")
    box = page.get_by_label("Message", exact=True)
    await box.fill(f'call playground_note {{"text": {json.dumps(text)}}}\nthen\nsay Noted.')
    await box.press("Enter")
    await page.wait_for_url("**/ui/chat/*")


async def test_a_call_is_compared_with_the_last_one_and_allowed_until_a_day(
    chromium: Browser, yard: AskingYard
) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await ask(page, "milk")
        review = page.locator(".tool-card .ask")
        await expect(review).to_contain_text("Allow Playground to run")
        await expect(review).to_contain_text("This tool can change data.")
        await expect(review).to_contain_text("that is configured for this Toolyard")
        await expect(review.locator(".argument dd")).to_contain_text("milk")
        await expect(review.locator(".chip")).to_have_count(0)
        await review.get_by_role("button", name="Allow once").click()
        await expect(page.locator(".md").last).to_have_text("Noted.")

        await ask(page, "bread")
        await expect(review).to_contain_text("1 argument differs from the last call that you approved")
        await expect(review.locator(".argument.changed del")).to_have_text("milk")
        # By keyboard alone.
        always = review.get_by_role("button", name="Always allow this tool of Playground until")
        await always.focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".md").last).to_have_text("Noted.")

        await ask(page, "anything")
        await expect(page.locator(".md").last).to_have_text("Noted.")
        await page.goto("/ui/approvals")
        grant = page.locator("#grants li")
        await expect(grant).to_contain_text("With any arguments, in every chat and for programs, until")
        await grant.get_by_role("button", name="Revoke").click()
        await expect(page.locator("#grants")).to_contain_text("No standing approvals.")

        await ask(page, "again")
        await expect(review).to_contain_text("Allow Playground to run")
        await page.goto("/ui/approvals")
        await page.locator("summary", has_text="More choices").click()
        await page.get_by_label("Always allow this tool until").select_option("7")
        await page.get_by_role("button", name="Allow until then").click()
        await expect(page.locator("#waiting")).to_contain_text("Nothing to approve")
        until = await page.locator("#grants time").get_attribute("datetime")
        milliseconds = await page.evaluate("Date.now()")
        remaining_milliseconds = await page.evaluate("(text) => Date.parse(text)", until) - milliseconds
        assert 6.9 < remaining_milliseconds / 86_400_000 < 7.1


async def test_an_approval_is_read_and_given_without_a_script(chromium: Browser, yard: AskingYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        await open_window.page.goto("/ui/approvals")
        for button in await open_window.page.get_by_role("button", name="Revoke").all():
            await button.click()
        await ask(open_window.page, "plain")
        await expect(open_window.page.locator(".tool-card .ask")).to_contain_text("Allow Playground")
        address = open_window.page.url
    async with window(chromium, yard, java_script_enabled=False) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await page.goto(address)
        await page.get_by_role("link", name="More choices").click()
        await expect(page.locator(".argument dd")).to_contain_text("plain")
        await page.get_by_role("button", name="Allow for this chat").click()
        await expect(page.locator("main")).to_contain_text("You approved this call")
        await page.goto("/ui/approvals")
        await expect(page.locator("#grants li")).to_contain_text("only, until")
