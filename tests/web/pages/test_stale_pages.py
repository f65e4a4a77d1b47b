"""Pages in a real browser that outlive their sign-in, their server's answers or their chat."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Route, expect
from tests.conftest import ProgramStarter
from tests.web.conftest import PASSWORD, ROOT, password_hash
from tests.web.pages.test_browser import HIDE, SHOW

from toolyard.store import Database
from toolyard.types.account import Role

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

WORDS = "Words that took an hour"


async def _fill(data: Path) -> None:
    database = await Database.open(data, url=None, secret_key=None)
    for name in ("ann", "bob"):
        user = await database.accounts.add_user(name, Role.ADMIN)
        await database.accounts.set_password_hash(user.id, password_hash())
    await database.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real ``toolyard serve`` with passwords and a model."""
    data, programs = tmp_path_factory.mktemp("outlive"), ProgramStarter()
    model = programs(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}")
    (data / "toolyard.toml").write_text(
        f'people_mode = "password"\n[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\n'
        'api_key = "good"\n',
        "utf-8",
    )
    asyncio.run(_fill(data))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield server_program.url
    programs.stop()


@dataclass
class Windows:
    """One browser of one person: the window that is looked at, and another one."""

    page: Page
    other: Page

    async def sign_in(self, name: str) -> None:
        await self.other.goto("/ui/sign-in")
        await self.other.get_by_label("Name").fill(name)
        await self.other.get_by_label("Password").fill(PASSWORD)
        await self.other.keyboard.press("Enter")
        await self.other.wait_for_url("**/ui/")

    async def sign_out(self) -> None:
        await self.other.goto("/ui/account")
        await self.other.get_by_role("button", name="Sign out", exact=True).click()
        await self.other.wait_for_url("**/ui/sign-in")

    async def begin(self) -> None:
        """A chat with one turn."""
        await self.page.goto("/ui/chat")
        await self.page.get_by_label("Message", exact=True).fill("say One.")
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url("**/ui/chat/*")
        await expect(self.page.locator(".foot-line")).to_be_visible()

    async def send_signed_out(self) -> None:
        """Send words after signing out elsewhere: they stay. Sign in again, and send them as they are."""
        message = self.page.get_by_label("Message", exact=True)
        await self.sign_out()
        await message.fill(WORDS)
        await message.press("Enter")
        await expect(self.page.locator("#alerts")).to_contain_text("You are signed out")
        await expect(message).to_have_value(WORDS)
        await self.sign_in("ann")
        await message.press("Enter")


@pytest_asyncio.fixture(loop_scope="session")
async def windows(chromium: Browser, url: str) -> AsyncIterator[Windows]:
    context: BrowserContext = await chromium.new_context(base_url=url)
    context.set_default_timeout(60_000)
    windows = Windows(await context.new_page(), await context.new_page())
    await windows.sign_in("ann")
    yield windows
    await context.close()


async def test_a_message_is_not_lost_after_a_sign_out_in_another_window(windows: Windows) -> None:
    page = windows.page
    await windows.begin()
    await windows.send_signed_out()
    await expect(page.locator(".turn")).to_have_count(2)
    await expect(page.locator(".turn").last).to_contain_text(f"You said: {WORDS}")
    await expect(page.get_by_label("Message", exact=True)).to_have_value("")
    await expect(page.locator("#alerts")).to_be_empty()


async def test_the_first_message_of_a_chat_is_not_lost_either(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/chat")
    await windows.send_signed_out()
    await page.wait_for_url("**/ui/chat/*")
    await expect(page.locator(".turn")).to_contain_text(f"You said: {WORDS}")


async def test_a_form_keeps_its_values_and_works_after_the_next_sign_in(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/tokens")
    await page.get_by_label("Name").fill("typed")
    await windows.sign_out()
    await page.get_by_role("button", name="Create token").click()
    await expect(page.locator("#flash")).to_contain_text("You are signed out")
    await expect(page.get_by_label("Name")).to_have_value("typed")
    await windows.sign_in("ann")
    await page.get_by_role("button", name="Create token").click()
    await expect(page.locator("#token-text")).to_be_visible()


async def test_nothing_is_done_for_another_user_who_signed_in_meanwhile(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/tokens")
    await page.get_by_label("Name").fill("of ann")
    await windows.sign_out()
    await windows.sign_in("bob")
    await page.get_by_role("button", name="Create token").click()
    await expect(page.locator("#flash")).to_contain_text("You are signed out")
    await windows.other.goto("/ui/tokens")
    await expect(windows.other.locator("main")).to_contain_text("No tokens yet")


async def test_a_page_that_can_change_no_more_says_so_until_it_can_again(windows: Windows) -> None:
    page = windows.page
    await page.route("**/api/v1/events", lambda route: route.fulfill(status=401))
    await page.route("**/api/v1/me", lambda route: route.fulfill(status=401))
    await page.goto("/ui/mcp")
    await expect(page.locator("#flash")).to_contain_text("You are signed out")
    await page.unroute_all()
    # As when somebody comes back to the window.
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("#flash")).to_be_empty()


@pytest.mark.parametrize(("where", "stream"), [("/ui/mcp", "/api/v1/events"), ("", "/stream")])
async def test_a_page_says_that_too_many_streams_are_open_until_one_is_free(
    windows: Windows, where: str, stream: str
) -> None:
    page = windows.page
    await (page.goto(where) if where else windows.begin())
    await page.route(re.compile(stream), lambda route: route.fulfill(status=429))
    await page.reload()
    await expect(page.locator("#paused")).to_contain_text("Live updates are paused: too many pages")
    await page.unroute_all()
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(page.locator("#paused")).to_have_count(0)


async def test_a_page_listens_again_after_a_proxy_answered_in_place_of_the_server(windows: Windows) -> None:
    page, answers, again = windows.page, [502], asyncio.Event()

    async def answer(route: Route) -> None:
        if answers and route.request.resource_type == "eventsource":
            await route.fulfill(status=answers.pop(), body="Bad Gateway")
            return
        if route.request.resource_type == "eventsource":
            again.set()
        await route.continue_()

    await page.route("**/api/v1/events", answer)
    await page.goto("/ui/mcp")
    await asyncio.wait_for(again.wait(), 30)


@pytest.mark.parametrize("busy", [False, True])
async def test_any_number_of_tabs_can_be_open(windows: Windows, busy: bool) -> None:
    page = windows.page
    if busy:
        await page.goto("/ui/chat")
        await page.get_by_label("Message", exact=True).fill("say One.\nhold\nsay Two.")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/chat/*")
        await expect(page.locator(".answer")).to_contain_text("One.")
    else:
        await page.goto("/ui/mcp")
    where = page.url
    await page.evaluate(HIDE)
    # Six is what a browser holds.
    for _ in range(6):
        tab = await page.context.new_page()
        await tab.goto(where)
        await tab.evaluate(HIDE)
    await windows.other.goto("/ui/tokens")
    if busy:
        await page.evaluate(SHOW)
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".turn")).to_contain_text("Stopped")


async def test_a_reader_sees_that_the_chat_was_deleted(windows: Windows) -> None:
    page, other = windows.page, windows.other
    await page.set_viewport_size({"width": 800, "height": 400})
    await windows.begin()
    for number in range(3):
        await page.get_by_label("Message", exact=True).fill("\n".join(str(number) * 20))
        await page.keyboard.press("Enter")
        await expect(page.locator(".foot-line")).to_have_count(number + 2)
    await other.goto(f"{page.url.split('#')[0]}/delete")
    await other.get_by_role("button", name="Delete").click()
    await expect(page.locator("#alerts")).to_contain_text("This chat was deleted")
    await expect(page.locator("#alerts .alert")).to_be_in_viewport()
