"""Models in a real browser: from an installation without any to a chat with each API, and two admins."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.journeys.conftest import ROOT

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


def start_model(start_program: ProgramStarter) -> str:
    """A model that does what it is told, for the key "good"; its address."""
    return start_program(sys.executable, "-I", ROOT / "tests/servers/openai_server.py", "{port}").url


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, start_program: ProgramStarter, tmp_path: Path) -> AsyncIterator[Page]:
    """The home page of a Toolyard with one local user, the demo server and no model."""
    demo = {"command": sys.executable, "args": ["-m", "toolyard.cli.demo_server"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo}}))
    words = (sys.executable, "-m", "toolyard", "--data-dir", tmp_path, "serve", "--port", "{port}")
    url = start_program(*words, HOME=str(tmp_path)).url
    context = await chromium.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto("/ui/")
    yield page
    await context.close()
    assert complaints == []


async def fill_form(page: Page, url: str, name: str, key: str) -> None:
    await page.get_by_label("Provider").select_option(label="OpenAI-compatible endpoint")
    await page.get_by_label("Model", exact=True).fill("fake-1")
    await page.get_by_label("Address", exact=True).fill(f"{url}/v1")
    await page.get_by_label("API key").fill(key)
    await page.get_by_text("More options").click()
    await page.get_by_label("Short name").fill(name)


async def test_a_model_is_added_tested_chosen_and_used(page: Page, start_program: ProgramStarter) -> None:
    url = start_model(start_program)
    await page.get_by_role("main").get_by_role("link", name="Add a model").click()
    await fill_form(page, url, "house", "wrong")
    test_result = page.locator("#tested")
    await page.get_by_role("button", name="Test").click()
    await expect(test_result).to_contain_text("Address is a private network address")
    await page.get_by_label("Allow private network addresses").check()
    await page.get_by_role("button", name="Test").click()
    await expect(test_result).to_contain_text("refused the key")
    # What was typed is still there: only the outcome was replaced.
    await expect(page.get_by_label("API key")).to_have_value("wrong")
    await page.get_by_label("API key").fill("good")
    await page.get_by_role("button", name="Test").click()
    await expect(test_result).to_contain_text("The model works")
    await page.get_by_role("button", name="Add model").click()
    await expect(page.locator("#flash")).to_contain_text("“house” was added.")
    row = page.get_by_role("listitem").filter(has_text="house")
    await expect(row).to_contain_text("Key stored")

    await page.get_by_role("link", name="Add a model").click()
    await fill_form(page, url, "spare", "good")
    await page.get_by_label("Allow private network addresses").check()
    await page.get_by_label("Input price").fill("0.5")
    await page.get_by_label("Output price").fill("2")
    await page.get_by_role("button", name="Add model").click()
    spare = page.get_by_role("listitem").filter(has_text="spare")
    await expect(spare).to_contain_text("$0.5 in, $2 out per million tokens")
    await expect(row).to_contain_text("Default")
    await spare.get_by_label("More about spare").click()
    await spare.get_by_role("button", name="Make default").click()
    await expect(page.locator("#flash")).to_contain_text("New chats use “spare”.")
    await expect(spare).to_contain_text("Default")
    await spare.get_by_role("button", name="Test spare").click()
    await expect(page.locator("#flash")).to_contain_text("“spare” answered in")

    await page.goto("/ui/chat")
    await page.get_by_label("Message", exact=True).fill("say Hello there")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("group", name="Answer")).to_contain_text("Hello there")


@pytest.mark.parametrize("provider", ["Ollama", "OpenAI Responses API", "Anthropic", "Google Gemini"])
async def test_the_first_answer_with_a_tool_call_needs_only_the_pages(
    page: Page, start_program: ProgramStarter, provider: str
) -> None:
    """Ollama is a model on one's own machine, without a key; each of the others has an API of its own."""
    is_local = provider == "Ollama"
    program, options = ("openai_server.py", ["--any-key"]) if is_local else ("providers_server.py", [])
    url = start_program(sys.executable, ROOT / "tests/servers" / program, "{port}", *options).url
    await page.get_by_role("main").get_by_role("link", name="Add a model").click()
    await page.get_by_label("Provider").select_option(label=provider)
    await page.get_by_label("Model", exact=True).fill("fake-1")
    await page.get_by_label("Address", exact=True).fill(
        url if provider in ("Anthropic", "Google Gemini") else f"{url}/v1"
    )
    await page.get_by_label("Allow private network addresses").check()
    if not is_local:
        await page.get_by_label("API key").fill("wrong")
        await page.get_by_role("button", name="Test").click()
        await expect(page.locator("#tested")).to_contain_text("refused the key")
        await page.get_by_label("API key").fill("good")
    await page.get_by_role("button", name="Test").click()
    await expect(page.locator("#tested")).to_contain_text("The model works")
    await page.get_by_role("button", name="Add model").click()
    await expect(page.locator("#flash")).to_contain_text("“fake-1” was added.")

    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Chat").click()
    # Enter sends the message once the script of the page is loaded.
    await page.wait_for_url("**/ui/chat")
    call = 'call demo_weekday {"date": "2026-07-28"}'
    await page.get_by_label("Message", exact=True).fill(f"{call}\nthen\nresults?" if is_local else call)
    await page.keyboard.press("Enter")
    expected_text = "2026-07-28 is a Tuesday." if is_local else "It says: 2026-07-28 is a Tuesday."
    await expect(page.get_by_role("group", name="Answer").get_by_text(expected_text)).to_be_visible()


async def test_another_address_asks_for_the_key_again(page: Page, start_program: ProgramStarter) -> None:
    first, second = start_model(start_program), start_model(start_program)
    await page.goto("/ui/admin/models/new")
    await fill_form(page, first, "house", "good")
    await page.get_by_label("Allow private network addresses").check()
    await page.get_by_role("button", name="Add model").click()
    await page.get_by_role("link", name="house", exact=True).click()
    await expect(page.get_by_text("A key is stored. Leave empty to keep it.")).to_be_visible()
    await page.get_by_label("Address", exact=True).fill(f"{second}/v1")
    await page.get_by_role("button", name="Save").click()
    error = page.locator("#api_key-error")
    await expect(error).to_contain_text("must be entered again, because the address changed")
    await page.get_by_label("API key").fill("good")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#flash")).to_contain_text("“house” was saved.")
    await page.get_by_role("button", name="Test house").click()
    await expect(page.locator("#flash")).to_contain_text("“house” answered in")


async def test_the_second_of_two_admins_sees_that_the_model_changed(page: Page) -> None:
    await page.goto("/ui/admin/models/new")
    await page.get_by_label("Provider").select_option(label="Ollama")
    await page.get_by_label("Model", exact=True).fill("llama3.2")
    await page.get_by_role("button", name="Add model").click()
    await page.get_by_role("link", name="llama3.2", exact=True).click()
    other = await page.context.new_page()
    await other.goto(page.url)
    await other.get_by_label("Display name").fill("Theirs")
    await other.get_by_role("button", name="Save").click()
    await expect(other.locator("#flash")).to_contain_text("was saved.")
    await page.get_by_label("Display name").fill("Ours")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("This model has changed")).to_be_visible()
    await expect(page.get_by_label("Display name")).to_have_value("Ours")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("link", name="Ours", exact=True)).to_be_visible()
