"""The first minutes in a real browser: first steps, a server of the catalogue, a proposal."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Page, expect
from tests.conftest import ListeningProgram, ProgramStarter
from tests.journeys.conftest import ROOT
from tests.web.conftest import PASSWORD, password_hash
from tests.web.pages.test_connect import REQUEST

from toolyard.store import Database
from toolyard.types.account import Role

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

# ``toolyard`` with one known server at an address of this machine.
PROGRAM = """
import sys
from toolyard.config import known_servers
docs = known_servers.KnownServer(
    "docs", "Library docs", "Answers questions about libraries.", {"type": "http", "url": sys.argv.pop(1)},
    known_servers.SignInMethod.NONE,
)
known_servers.read_known_servers = lambda: {"docs": docs}
from toolyard.__main__ import main
sys.exit(main())
"""
STEPS = ["Try a tool", "Add a server", "Choose a model", "Connect your editor", "Invite people"]

Opening = Callable[..., Awaitable[Page]]


@pytest.fixture
def docs(start_program: ProgramStarter) -> str:
    return f"{start_program(sys.executable, ROOT / 'tests/servers/docs_server.py', '{port}').url}/mcp"


@pytest.fixture
def open_page(chromium: Browser, start_program: ProgramStarter, tmp_path: Path, docs: str) -> Opening:
    """Start a Toolyard with these people, at the first call, and open its home page as one of them."""
    started_programs: list[ListeningProgram] = []

    async def add_people(names: dict[str, Role]) -> None:
        database = await Database.open(tmp_path, url=None, secret_key=None)
        for name, role in names.items():
            user = await database.accounts.add_user(name, role)
            await database.accounts.set_password_hash(user.id, password_hash())
        await database.close()

    async def start(name: str = "", width: int = 1280, **people: Role) -> Page:
        if not started_programs:
            demo = {"command": sys.executable, "args": ["-m", "toolyard.cli.demo_server"]}
            (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"demo": demo}}))
            # In a thread with a loop of its own: what it opens must not outlive this call.
            await asyncio.to_thread(asyncio.run, add_people(people))
            words = (sys.executable, "-c", PROGRAM, docs, "--data-dir", tmp_path, "serve", "--port", "{port}")
            env = {"HOME": str(tmp_path), "TOOLYARD_PEOPLE_MODE": "password" if people else "none"}
            started_programs.append(start_program(*words, **env))
        context = await chromium.new_context(
            base_url=started_programs[0].url, viewport={"width": width, "height": 844}, color_scheme="dark"
        )
        context.set_default_timeout(60_000)
        page = await context.new_page()
        await page.goto("/ui/")
        if name:
            await page.get_by_label("Name").fill(name)
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Home")
        return page

    return start


async def expect_done(page: Page, *names: str) -> None:
    """Reload the home page until these steps, and no others, are ticked."""
    async with asyncio.timeout(60):
        while True:
            await page.goto("/ui/")
            titles = await page.locator("#first-steps .done .row-title").all_inner_texts()
            done_titles = [title.replace("(done)", "").strip() for title in titles]
            # The audit log is written a moment after a call.
            if done_titles == [step for step in STEPS if step in names]:
                return


async def try_tool(page: Page, name: str, result: str, **fields: str) -> None:
    """Open a tool that the page lists, fill in its form, and call it."""
    await page.get_by_role("link", name=name, exact=True).click()
    for label, value in fields.items():
        await page.get_by_label(label).fill(value)
    await page.get_by_role("button", name="Call").click()
    await expect(page.locator("#result")).to_contain_text(result)


async def initialize(page: Page, token: str) -> None:
    """An editor with this token begins a session."""
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {token}"}
    url = re.sub(r"/ui/.*", "/mcp", page.url)
    async with aiohttp.ClientSession() as session, session.post(url, json=REQUEST, headers=headers) as answer:
        assert answer.status == 200


async def test_every_first_step_is_ticked_by_doing_it(
    open_page: Opening, model_program: ListeningProgram
) -> None:
    page = await open_page("root", root=Role.ADMIN)
    titles = await page.locator("#first-steps .row-title").all_inner_texts()
    assert [each.strip() for each in titles] == STEPS
    await expect(page.locator("#first-steps")).to_contain_text("0 of 5 done")

    await page.locator("#first-steps").get_by_role("link", name="Run a tool").click()
    await page.get_by_role("link", name=re.compile("weekday")).click()
    await page.get_by_label("date").fill("2026-07-28")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.get_by_role("main")).to_contain_text("is a Tuesday")
    await expect_done(page, "Try a tool")

    await page.get_by_role("link", name="Open catalogue").click()
    await page.get_by_role("button", name="Add Library docs").click()
    await page.get_by_role("button", name="Allow and add").click()
    await expect(page.get_by_role("link", name="query-docs", exact=True)).to_be_visible()
    await expect_done(page, "Try a tool", "Add a server")

    await page.locator("#first-steps").get_by_role("link", name="Add a model").click()
    for field, value in (("model", "fake-1"), ("base_url", f"{model_program.url}/v1"), ("api_key", "good")):
        await page.locator(f"#{field}").fill(value)
    await page.get_by_label("Allow private network addresses").check()
    await page.get_by_role("button", name="Add model").click()
    await expect(page.locator("#flash")).to_contain_text("added")
    await expect_done(page, "Try a tool", "Add a server", "Choose a model")

    await page.get_by_role("link", name="Show entry").click()
    await page.get_by_role("button", name="Create token").click()
    await initialize(page, await page.locator("#token-text").input_value())
    await expect_done(page, *STEPS[:4])

    await page.locator("#first-steps").get_by_role("link", name="Invite").click()
    await page.get_by_label("Invite someone").fill("bob")
    await page.get_by_role("button", name="Create invite link").click()
    await expect(page.get_by_text("Invite link for bob")).to_be_visible()
    await page.goto("/ui/")
    await expect(page.get_by_role("heading", name="My instances")).to_be_visible()
    await expect(page.get_by_role("heading", name="First steps")).to_have_count(0)


async def test_the_steps_go_when_they_are_hidden(open_page: Opening) -> None:
    page = await open_page(width=390)
    await page.get_by_role("button", name="Hide first steps").click()
    await expect(page.get_by_role("heading", name="First steps")).to_have_count(0)
    await page.reload()
    await expect(page.get_by_role("heading", name="My instances")).to_be_visible()
    await expect(page.get_by_role("heading", name="First steps")).to_have_count(0)


async def test_a_remote_server_of_the_catalogue_is_added_and_its_tool_tried(open_page: Opening) -> None:
    page = await open_page(width=390)
    await page.goto("/ui/mcp")
    await page.get_by_role("link", name="Catalogue", exact=True).click()
    search = page.get_by_label("Search the catalogue")
    await search.fill("nothing like it")
    await expect(page.get_by_text("Nothing found")).to_be_visible()
    await search.fill("libraries")
    await page.get_by_role("button", name="Add Library docs").click()
    await expect(page.get_by_text("127.0.0.1 is a private address")).to_be_visible()
    await page.get_by_role("button", name="Allow and add").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Library docs")
    await try_tool(page, "resolve-library-id", "/docs/react", library="React")
    await page.goto("/ui/catalog")
    card = page.locator("#known-docs")
    await expect(card).to_contain_text("added")
    await card.get_by_role("link", name="Open Library docs").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Library docs")


async def test_a_proposed_server_is_available_once_an_admin_accepts_it(open_page: Opening) -> None:
    people = {"root": Role.ADMIN, "ann": Role.USER}
    ann, root = await open_page("ann", width=390, **people), await open_page("root")
    await ann.goto("/ui/catalog")
    await ann.get_by_role("link", name="Propose Library docs").click()
    await ann.get_by_label("Reason").fill("I write against many libraries.")
    await ann.get_by_role("button", name="Propose").click()
    await expect(ann.locator("#flash")).to_contain_text("was proposed")

    await root.reload()
    nav = root.get_by_role("navigation", name="Main").get_by_role("link", name=re.compile("Proposals"))
    await expect(nav.locator(".badge")).to_contain_text("1")
    await nav.click()
    await expect(root.get_by_text("I write against many libraries.")).to_be_visible()
    await root.get_by_role("link", name="Accept Library docs").click()
    await expect(root.get_by_text("Proposed by ann")).to_be_visible()
    await root.get_by_role("button", name="Add server").click()
    await root.get_by_role("button", name="Allow and add").click()
    await expect(root.get_by_role("heading", level=1)).to_have_text("Library docs")
    await root.goto("/ui/admin/proposals")
    await expect(root.get_by_text("Accepted")).to_be_visible()

    await ann.goto("/ui/")
    await expect(ann.get_by_text("“Library docs” was accepted")).to_be_visible()
    await ann.get_by_role("link", name="Details").click()
    await ann.get_by_role("link", name="Connect").click()
    await ann.get_by_role("button", name="Create").click()
    await try_tool(ann, "resolve-library-id", "/docs/vue", library="Vue")
