"""Agents that people create, in a real browser: from the form to a chat, and from one person to another."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.conftest import ProgramStarter
from tests.web.conftest import password_hash
from tests.web.pages.test_browser import BrowserWindow, schemes, window

from toolyard.accounts import AccountService
from toolyard.config.settings.table import PeopleMode, Settings
from toolyard.store import Database
from toolyard.types.account import Role
from toolyard.web.access.cookies import cookie_name

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]
SETTINGS = Settings(people_mode=PeopleMode.PASSWORD)
STARTER = 'call demo_weekday {"date": "2026-07-28"}'


@dataclass
class AgentYard:
    """A real ``toolyard serve`` for a team, with a model that does what it is told."""

    url: str
    sessions: dict[str, str]


async def _add_people(data: Path) -> dict[str, str]:
    database = await Database.open(data, url=None, secret_key=None)
    people, sessions = AccountService(database.accounts, SETTINGS), dict[str, str]()
    for name, role in (("root", Role.ADMIN), ("bob", Role.USER)):
        user = await database.accounts.add_user(name, role)
        await database.accounts.set_password_hash(user.id, password_hash())
        found_user = await database.accounts.get_user(user.id)
        assert found_user is not None
        sessions[name] = await people.begin_session(found_user)
    await database.close()
    return sessions


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentYard]:
    data, programs = tmp_path_factory.mktemp("agents"), ProgramStarter()
    model = programs(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}")
    demo = {"label": "Demo", "command": sys.executable, "args": ["-I", "-m", "toolyard.cli.demo_server"]}
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo}}), "utf-8")
    (data / "AGENTS.md").write_text("## Filed\n---\ntools: [demo_count]\n---\nYou count.\n", "utf-8")
    (data / "toolyard.toml").write_text(
        f'people_mode = "password"\n[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\n'
        'api_key = "good"\nlabel = "Fake one"\n',
        "utf-8",
    )
    sessions = asyncio.run(_add_people(data))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield AgentYard(server_program.url, sessions)
    programs.stop()


@asynccontextmanager
async def signed_in(
    chromium: Browser, yard: AgentYard, name: str, path: str, **options: object
) -> AsyncIterator[BrowserWindow]:
    async with window(chromium, yard, **options) as open_window:  # type: ignore[arg-type]
        cookie = {"name": cookie_name(SETTINGS), "value": yard.sessions[name], "url": yard.url}
        await open_window.page.context.add_cookies([cookie])  # type: ignore[list-item]
        await open_window.page.goto(path)
        yield open_window


async def fill_in(page: Page, name: str) -> Locator:
    """Fill in the form of a new agent with a ticked tool, a pattern and a starter prompt; the preview."""
    await page.get_by_label("Name", exact=True).fill(name)
    await page.locator("#prompt").fill("Say <b>nothing</b> else.")
    await page.get_by_role("checkbox", name="demo_weekday").check()
    preview = page.locator("#preview")
    await expect(preview.get_by_text("demo_weekday", exact=True)).to_be_visible()
    await expect(preview.get_by_text("demo_count", exact=True)).to_have_count(0)
    await page.get_by_label("Patterns").fill("demo_c*\nnothing_*")
    await expect(preview.get_by_text("demo_count", exact=True)).to_be_visible()
    await expect(preview).to_contain_text("No tool matches: nothing_*")
    await page.get_by_label("Starter prompt 1").fill(STARTER)
    return preview


async def start_chat(page: Page, agent: str) -> None:
    """Start a chat with an agent by its starter prompt, which makes the model call a tool."""
    await page.get_by_role("link", name="Chat", exact=True).last.click()
    await expect(page.get_by_role("heading", name=agent)).to_be_visible()
    await page.get_by_role("button", name=STARTER).click()
    await page.wait_for_url("**/ui/chat/*")
    await expect(page.locator(".turn").last).to_contain_text("Tuesday")


async def test_an_agent_goes_from_the_form_to_a_chat_and_to_another_person(
    chromium: Browser, yard: AgentYard
) -> None:
    async with signed_in(chromium, yard, "root", "/ui/agents") as browser:
        page = browser.page
        await page.get_by_role("link", name="New agent").click()
        await fill_in(page, "Calendar")
        await page.get_by_role("button", name="Create agent").click()
        await expect(page.get_by_role("heading", name="Calendar", exact=True)).to_be_visible()
        await expect(page.locator("#tools")).to_contain_text("demo_count")
        await expect(page.get_by_text("private: only you can use it")).to_be_visible()
        private = page.url
        await start_chat(page, "Calendar")

        await page.goto(private)
        await page.get_by_label("More about Calendar").click()
        await page.get_by_role("button", name="Duplicate").click()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("Calendar copy")
        await expect(page.get_by_role("checkbox", name="demo_weekday")).to_be_checked()
        await expect(page.get_by_label("Patterns")).to_have_value("demo_c*\nnothing_*")
        await page.get_by_label("Name", exact=True).fill("Team calendar")
        await page.get_by_role("checkbox", name="Share with everyone").check()
        await page.get_by_role("button", name="Save").last.click()
        await expect(page.get_by_text("shared with everyone")).to_be_visible()

    async with signed_in(chromium, yard, "bob", "/ui/agents") as browser:
        page = browser.page
        await expect(page.locator("#agent-list > li")).to_have_count(2)
        await expect(page.get_by_role("link", name="Calendar", exact=True)).to_have_count(0)
        await page.get_by_role("link", name="Team calendar", exact=True).click()
        await expect(page.get_by_role("link", name="Edit")).to_have_count(0)
        await start_chat(page, "Team calendar")
        # Not for bob, by whichever way.
        assert await page.evaluate(f"fetch('{private}').then((answer) => answer.status)") == 404
        browser.said.clear()


async def test_the_prompts_follow_the_chosen_agent(chromium: Browser, yard: AgentYard) -> None:
    async with signed_in(chromium, yard, "bob", "/ui/agents/_new") as browser:
        page = browser.page
        await fill_in(page, "Prompting")
        await page.get_by_role("button", name="Create agent").click()
        await expect(page.get_by_role("heading", name="Prompting", exact=True)).to_be_visible()
        await page.goto("/ui/chat")
        await page.get_by_label("Message", exact=True).fill("a draft")
        await expect(page.get_by_role("heading", name="How can I help?")).to_be_visible()
        await page.get_by_label("Agent").select_option("Prompting")
        await expect(page.get_by_role("button", name=STARTER)).to_be_visible()
        await expect(page.get_by_label("Message", exact=True)).to_have_value("a draft")
        await page.get_by_label("Agent").select_option("No agent")
        await expect(page.get_by_role("button", name=STARTER)).to_have_count(0)


async def test_a_file_is_imported_and_a_second_window_is_told_of_a_change(
    chromium: Browser, yard: AgentYard
) -> None:
    async with signed_in(chromium, yard, "bob", "/ui/agents/_import") as browser:
        page = browser.page
        text = '---\nname: "Imported <i>one</i>"\ntools: [demo_weekday]\n---\nRead.\n'
        await page.get_by_label("File").set_input_files(
            {"name": "x.md", "mimeType": "text/markdown", "buffer": text.encode()}
        )
        await expect(page.get_by_label("Text")).to_have_value(text)
        await page.get_by_role("button", name="Import").click()
        await expect(page.get_by_role("heading", name="Imported <i>one</i>", exact=True)).to_be_visible()
        await page.get_by_role("link", name="Edit").click()
        other = await page.context.new_page()
        await other.goto(page.url)
        await page.get_by_label("Description").fill("first")
        await page.get_by_role("button", name="Save").last.click()
        # The server may receive two requests in either order.
        await expect(page.locator(".subtitle")).to_have_text("first")
        await other.get_by_label("Description").fill("second")
        await other.get_by_role("button", name="Save").last.click()
        await expect(other.get_by_text("This agent has changed")).to_be_visible()
        await expect(other.get_by_label("Description")).to_have_value("second")
        await other.get_by_role("button", name="Save").last.click()
        await expect(other.locator(".subtitle")).to_have_text("second")
        await other.close()
        browser.said.clear()


async def test_without_script_a_button_shows_the_preview(chromium: Browser, yard: AgentYard) -> None:
    async with signed_in(chromium, yard, "bob", "/ui/agents/_new", java_script_enabled=False) as browser:
        page = browser.page
        await page.get_by_label("Name", exact=True).fill("Plain")
        await page.get_by_role("checkbox", name="demo_weekday").check()
        await page.get_by_role("button", name="Preview").click()
        await expect(page.locator("#preview").get_by_text("demo_weekday", exact=True)).to_be_visible()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("Plain")
        await page.get_by_label("Starter prompt 1").fill(STARTER)
        await page.get_by_role("button", name="Create agent").click()
        await page.get_by_role("link", name="Chat", exact=True).last.click()
        await page.get_by_role("button", name=STARTER).click()
        await page.wait_for_url("**/ui/chat/*")
        await expect(page.locator(".turn")).to_have_count(1)


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_pages_fit_the_window_in_both_schemes(
    chromium: Browser, yard: AgentYard, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with signed_in(chromium, yard, "root", "/ui/agents", viewport=size) as browser:
        page = browser.page
        for path in ("/ui/agents", "/ui/agents/_new", "/ui/agents/_import", "/ui/agents/filed"):
            await page.goto(path)
            async for scheme in schemes(page):
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, (path, scheme)
