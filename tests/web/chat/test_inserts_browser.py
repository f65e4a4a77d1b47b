"""Prompts by "/" and resources by "@" in a real browser, with a real server that completes arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Request, expect
from tests.conftest import ProgramStarter
from tests.journeys.test_real_servers import EVERYTHING
from tests.web.chat.test_attachments_browser import received
from tests.web.chat.test_browser import (
    MODEL,
    ChatYard,
    begin,
    is_same_page,
    looking_at,
    turn,
    wait_for_turn_end,
)
from tests.web.chat.test_inserts import HOSTILE
from tests.web.pages.test_browser import CONTRAST, schemes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatYard]:
    data, programs = tmp_path_factory.mktemp("inserts"), ProgramStarter()
    model = programs(sys.executable, MODEL, "{port}")
    servers = {
        "every": {"label": "Everything", "command": str(EVERYTHING), "args": ["stdio"]},
        "bad": {"label": "Bad", "command": sys.executable, "args": ["-I", "-S", str(HOSTILE)]},
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    entry = f'model = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n'
    (data / "toolyard.toml").write_text(f"list_deadline = 30.0\n[models.fake]\n{entry}", "utf-8")
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, model, {})
    programs.stop()


async def test_a_prompt_is_inserted_by_a_slash_with_completed_arguments(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, requested_urls = context.page, list[str]()

        def note(request: Request) -> None:
            if "/insert/complete" in request.url:
                requested_urls.append(request.url)

        page.on("request", note)
        box, options = page.get_by_label("Message", exact=True), page.locator("#insert-box [role=option]")
        await box.press_sequentially("/complet")
        await expect(options).to_have_count(1)
        await expect(options).to_contain_text("Prompt of Everything")
        await box.press("Enter")
        dialog = page.locator("#dialog")
        await expect(dialog.get_by_label("department")).to_be_visible()
        await expect(box).to_have_value("")
        requested_urls.clear()
        await dialog.get_by_label("department").press_sequentially("Engin", delay=5)
        await expect(dialog.locator("#suggestions option[value=Engineering]")).to_be_attached()
        assert len(requested_urls) < 5, "the requests are debounced"
        await dialog.get_by_label("department").fill("Engineering")
        await dialog.get_by_label("name").press_sequentially("A")
        await expect(dialog.locator("#suggestions option[value=Alice]")).to_be_attached()
        await dialog.get_by_label("name").fill("Alice")
        await dialog.get_by_role("button", name="Insert").click()
        card = page.locator("#attachments .chip")
        await expect(card).to_contain_text("Prompt of Everything")
        await expect(box).to_be_focused()
        # The person sees what would be sent.
        await card.get_by_role("link").click()
        await expect(dialog.locator("pre")).to_contain_text("Alice")
        await dialog.get_by_role("button", name="Close").click()
        await begin(page, "say Welcome")
        await wait_for_turn_end(page)
        await expect(turn(page).locator(".attached .chip")).to_contain_text("Prompt of Everything")
        assert "Alice" in str(received(yard))


async def test_a_resource_is_inserted_by_an_at_sign_within_a_message(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, options = context.page, context.page.locator("#insert-box [role=option]")
        box = page.get_by_label("Message", exact=True)
        await box.press_sequentially("me@example.com say Read @archi")
        await expect(options.first).to_contain_text("Resource of Everything")
        await box.press("Escape")
        await expect(options.first).to_be_hidden()
        await box.press_sequentially("t")
        await expect(options.first).to_be_visible()
        await box.press("Enter")
        # Without arguments, there is nothing to fill in.
        await expect(page.locator("#dialog").get_by_role("button", name="Insert")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#attachments .chip")).to_contain_text("Resource of Everything")
        await expect(box).to_have_value("me@example.com say Read ")
        # Slashes within a message, and paths, are plain text.
        await box.fill("")
        await box.press_sequentially("say /etc/hosts and 1/2")
        await expect(page.locator("#insert-box")).to_be_hidden()
        await begin(page, "say Done")
        await wait_for_turn_end(page)
        assert await is_same_page(page)
        assert 'of the server "Everything"' in str(received(yard))


async def test_a_failure_is_told_in_the_dialog_and_the_message_stays(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, dialog = context.page, context.page.locator("#dialog")
        await page.get_by_label("Message", exact=True).fill("Keep me")
        await page.get_by_role("link", name="Insert prompt or resource").click()
        await dialog.get_by_label("Search prompts and resources").fill("Fails.")
        await expect(dialog.locator(".insert-item")).to_have_count(1)
        await dialog.locator(".insert-item").click()
        await dialog.get_by_role("button", name="Insert").click()
        await expect(dialog.locator(".alert")).to_be_visible()
        await dialog.get_by_role("link", name="Cancel").click()
        await expect(dialog).to_be_hidden()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("Keep me")
        assert await is_same_page(page)
        context.said[:] = [each for each in context.said if "502" not in each]


async def test_an_error_page_is_shown_as_a_short_message_beside_the_chat(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, dialog = context.page, context.page.locator("#dialog")
        await page.get_by_label("Message", exact=True).press_sequentially("/complet")
        await page.locator("#insert-box [role=option]").click()
        await dialog.get_by_label("department").fill("Engineering")
        await dialog.get_by_label("name").fill("Alice")
        # As if the server had been removed since.
        await dialog.locator("[name=server]").evaluate("(one) => (one.value = 'gone')")
        await dialog.get_by_role("button", name="Insert").click()
        alerts = page.locator("#alerts")
        await expect(alerts.get_by_role("alert")).to_have_text(
            "The server that offers this prompt was removed, or is not available in this chat. Reconnect the"
            " server, or choose another prompt or resource."
        )
        await expect(alerts.get_by_role("link")).to_have_count(0)
        context.said[:] = [each for each in context.said if "404" not in each]


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_list_and_the_form_fit_and_are_readable_in_both_themes(
    chromium: Browser, yard: ChatYard, width: int
) -> None:
    async with looking_at(chromium, yard, viewport={"width": width, "height": 844}) as context:
        page = context.page
        await page.get_by_label("Message", exact=True).press_sequentially("/")
        await expect(page.locator("#insert-box [role=option]").first).to_be_visible()
        for path in (None, "/ui/chat/insert", "/ui/chat/insert/form?kind=prompt&server=bad&name=markup"):
            if path is not None:
                await page.goto(path)
            async for _ in schemes(page):
                assert await page.evaluate(CONTRAST) == []
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
