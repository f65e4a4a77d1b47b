"""What a page does after a press, in a real browser: it shows what came of it, once, where one looks."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import expect
from tests.conftest import ProgramStarter
from tests.web.conftest import ROOT, password_hash
from tests.web.pages.test_browser import HIDE, SHOW
from tests.web.pages.test_stale_pages import Windows, windows

from toolyard.store import Database
from toolyard.types.account import Role
from toolyard.types.approval import Approval
from toolyard.types.audit import AuditEntry

__all__ = ["windows"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(180)]

IS_FOCUSED = (
    "(one) => one === (document.activeElement.getAttribute('aria-label') ?? document.activeElement.id)"
)


@dataclass(frozen=True)
class SiteWithLongLog:
    """A Toolyard of many people, with a long log."""

    url: str
    data: Path
    ann: str

    async def ask(self, id: str, name: str) -> None:
        """Somebody's program wants a yes of ann."""
        database = await Database.open(self.data, url=None, secret_key=None)
        call = Approval(id, self.ann, f"demo/{name}", name, "0" * 64, {}, "it writes", time.time())
        await database.approvals.add(call)
        await database.close()

    async def refuse(self, id: str) -> None:
        """She says no elsewhere."""
        database = await Database.open(self.data, url=None, secret_key=None)
        await database.approvals.answer(self.ann, id, yes=False, at=time.time(), grant=None)
        await database.close()


async def _fill(data: Path) -> str:
    database = await Database.open(data, url=None, secret_key=None)
    ann = await database.accounts.add_user("ann", Role.ADMIN)
    await database.accounts.set_password_hash(ann.id, password_hash())
    for number in range(30):
        await database.accounts.add_user(f"person{number:02}", Role.USER)
    for number in range(120):
        at = time.time() - 1000 + number
        await database.audit.write(AuditEntry(at, "tool.call", ann.id, "ann", f"call {number}", "ok", ""))
    await database.close()
    return ann.id


@pytest.fixture(scope="module")
def site_with_long_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteWithLongLog]:
    data, programs = tmp_path_factory.mktemp("pressed"), ProgramStarter()
    model = programs(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}")
    (data / "toolyard.toml").write_text(
        f'people_mode = "password"\n[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\n'
        'api_key = "good"\n',
        "utf-8",
    )
    ann = asyncio.run(_fill(data))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield SiteWithLongLog(server_program.url, data, ann)
    programs.stop()


@pytest.fixture(scope="module")
def url(site_with_long_log: SiteWithLongLog) -> str:
    return site_with_long_log.url


# The log.


async def test_the_log_is_filtered_by_action(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/admin/audit")
    await page.get_by_label("Action", exact=True).select_option("sign_in")
    await expect(page.locator("#list")).not_to_contain_text("Called a tool")
    await expect(page.locator("#list")).to_contain_text("Signed in")
    await expect(page.locator("#flash")).to_be_empty()
    assert "action=sign_in" in page.url


async def test_another_page_of_the_log_is_read_from_its_beginning(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/admin/audit")
    await page.get_by_role("link", name="Older").press("Enter")
    await expect(page.get_by_role("link", name="Newest")).to_have_count(1)
    await expect(page.locator("#list tbody tr").first).to_be_in_viewport()
    await expect(page.locator("#list")).to_be_focused()


# What is shown once.


async def test_a_token_that_was_made_is_in_sight(windows: Windows) -> None:
    page = windows.page
    await page.set_viewport_size({"width": 900, "height": 400})
    await page.goto("/ui/tokens")
    await page.get_by_label("Name").fill("seen")
    await page.get_by_role("button", name="Create token").press("Enter")
    await expect(page.locator("#token-text")).to_be_in_viewport()
    await expect(page.locator(".alert", has_text="“seen” created")).to_be_focused()


async def test_a_link_that_was_made_is_in_sight(windows: Windows) -> None:
    page = windows.page
    await page.set_viewport_size({"width": 900, "height": 400})
    await page.goto("/ui/admin/people")
    await page.get_by_label("More about person20").click()
    await page.locator("details.more[open]").get_by_role("button", name="New invite link").click()
    await expect(page.locator("#invite-link")).to_be_in_viewport()


async def test_focus_returns_to_the_row_after_using_its_menu(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/admin/people")
    await page.get_by_label("More about person21").click()
    await page.locator("details.more[open]").get_by_role("button", name="Disable").press("Enter")
    await expect(page.get_by_role("row", name="person21")).to_contain_text("Disabled")
    await page.wait_for_function(IS_FOCUSED, arg="More about person21")


# Approvals.


async def test_pending_approvals_are_shown_after_a_return_and_an_approval_counts_only_there(
    windows: Windows, site_with_long_log: SiteWithLongLog
) -> None:
    page = windows.page
    async with page.expect_response("**/api/v1/events"):
        await page.goto("/ui/approvals")
    await site_with_long_log.ask("p-1", "first")
    await page.evaluate(HIDE)
    await page.evaluate(SHOW)
    first = page.get_by_role("button", name="Allow once (first)")
    await first.focus()
    await site_with_long_log.ask("p-2", "second")
    await site_with_long_log.refuse("p-1")
    await page.evaluate(HIDE)
    await page.evaluate(SHOW)
    await expect(page.get_by_role("button", name="Allow once (second)")).to_be_visible()
    await expect(first).to_have_count(0)
    await page.wait_for_function(IS_FOCUSED, arg="main")
    await site_with_long_log.refuse("p-2")


# What is sent.


TWICE = """() => {
  const note = () => (sessionStorage.sent = `${sessionStorage.sent ?? ""}x`);
  addEventListener("submit", (event) => event.defaultPrevented || note());
  const button = document.querySelector("#dialog button");
  button.click();
  button.click();
}"""


async def test_a_double_click_sends_once(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/tokens")
    await page.get_by_label("Name").fill("twice")
    await page.get_by_role("button", name="Create token").click()
    await page.get_by_role("link", name="Revoke twice").click()
    await expect(page.locator("#dialog").get_by_role("button", name="Revoke")).to_be_visible()
    await page.evaluate(TWICE)
    await expect(page.locator("#flash")).to_contain_text("“twice” was revoked")
    assert await page.evaluate("sessionStorage.sent") == "x"


@pytest.mark.parametrize(
    ("status", "error_text"), [(413, "The request is too long"), (502, "is not responding")]
)
async def test_a_refused_form_keeps_its_values(windows: Windows, status: int, error_text: str) -> None:
    page = windows.page
    await page.goto("/ui/tokens")
    if status == 502:
        # A proxy, while the server starts again.
        answer = {"status": 502, "content_type": "text/html", "body": "<h1>Bad Gateway</h1>"}
        await page.route("**/ui/tokens", lambda route: route.fulfill(**answer))
    await page.get_by_label("Name").fill("kept")
    words = "w" * (2_000_000 if status == 413 else 10)
    await page.locator("#tools").evaluate("(box, text) => (box.value = text)", words)
    await page.get_by_role("button", name="Create token").click()
    await expect(page.locator("#flash")).to_contain_text(error_text)
    await expect(page.get_by_label("Name")).to_have_value("kept")


async def test_a_search_says_that_one_is_signed_out(windows: Windows) -> None:
    page = windows.page
    await page.goto("/ui/admin/people")
    await windows.sign_out()
    await page.get_by_label("Search people").fill("person1")
    await expect(page.locator("#flash")).to_contain_text("You are signed out")
    await expect(page.locator("h1")).to_have_text("People")
    await expect(page.get_by_label("Search people")).to_have_value("person1")


async def test_a_draft_is_kept_until_it_is_sent_or_the_user_signs_out(
    windows: Windows,
) -> None:
    page = windows.page
    message = page.get_by_label("Message", exact=True)
    await windows.begin()
    chat = page.url
    await message.fill("half a")
    await page.get_by_role("link", name="New chat").click()
    await page.wait_for_url("**/ui/chat")
    await expect(message).to_have_value("")
    await message.fill("another")
    await page.goto(chat)
    await expect(message).to_have_value("half a")
    await message.press("Enter")
    await expect(page.locator(".turn")).to_have_count(2)
    await expect(message).to_have_value("")
    await page.reload()
    await expect(message).to_have_value("")
    await page.goto("/ui/chat")
    await expect(message).to_have_value("another")
    await page.locator(".nav-row").get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/ui/sign-in")
    assert await page.evaluate("sessionStorage.length") == 0


# Without colours of its own.


async def test_where_one_is_can_be_seen_in_forced_colours(windows: Windows) -> None:
    page = windows.page
    await page.emulate_media(forced_colors="active")
    await page.goto("/ui/chat")
    links = page.locator("a[aria-current]")
    await expect(links.first).to_be_visible()
    for here in await links.all():
        assert await here.evaluate("(link) => getComputedStyle(link).outlineStyle") == "solid"
