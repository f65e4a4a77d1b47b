"""Badges, the title, notifications and the palette in a real browser."""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, FloatRect, Locator, Page, expect
from tests.conftest import ProgramStarter
from tests.web.chat.test_browser import MODEL, ChatYard, begin, looking_at, say, turn, wait_for_turn_end

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

WRITE = 'call playground_note {"text": "milk"}'
RECORD_NOTIFICATIONS = """
window.notices = [];
window.Notification = class { static permission = "granted";
  static requestPermission = async () => "granted";
  constructor(title, options) { notices.push(`${title}: ${options.body}`); } };
"""
HIDE = """Object.defineProperty(document, "hidden", {value: true});
document.dispatchEvent(new Event("visibilitychange"))"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatYard]:
    """``toolyard serve`` without chats, with a scripted model and a tool that needs approval."""
    data, programs = tmp_path_factory.mktemp("pending"), ProgramStarter()
    model = programs(sys.executable, MODEL, "{port}")
    servers = {
        name: {"command": sys.executable, "args": ["-I", "-m", f"toolyard.cli.{name}_server"]}
        for name in ("demo", "playground")
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    (data / "toolyard.toml").write_text(
        f'write_tools = "ask"\n[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\n'
        'api_key = "good"\n',
        "utf-8",
    )
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, model, {})
    programs.stop()


def call_write_tool(yard: ChatYard, text: str = "milk") -> None:
    """Call a tool that needs approval, as a program."""
    body = json.dumps({"arguments": {"text": text}}).encode()
    headers = {"Accept": "*/*", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{yard.url}/api/v1/tools/playground_note/call", body, headers, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request, timeout=30).read()
    assert b"approval" in refusal.value.read()


def badge(page: Page, name: str) -> Locator:
    return page.get_by_role("link", name=re.compile(rf"^{name}\s*\d+ waiting for you$"))


async def test_a_call_that_needs_approval_shows_in_the_navigation_and_the_title(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, "/ui/usage") as context:
        page = context.page
        await expect(page).to_have_title(re.compile(r"^Usage"))
        call_write_tool(yard)
        await page.evaluate("loadPending()")
        await expect(badge(page, "Approvals")).to_be_visible()
        await expect(page).to_have_title(re.compile(r"^\(1\) Usage"))
        await page.goto("/ui/approvals")
        await expect(page).to_have_title(re.compile(r"^\(1\) "))
        await page.get_by_role("button", name="Decline").click()
        await expect(badge(page, "Approvals")).to_have_count(0)
        await expect(page).to_have_title(re.compile(r"^Approvals"))


async def test_home_and_the_navigation_count_the_same_items(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/") as context:
        page = context.page
        await expect(page).to_have_title(re.compile(r"^Home"))
        await page.evaluate("loadPending()")
        call_write_tool(yard)
        await page.evaluate("loadPending()")
        await expect(badge(page, "Approvals")).to_be_visible()
        await expect(page.get_by_text("1 call needs your approval")).to_be_visible()
        await page.goto("/ui/chat")
        await begin(page, WRITE)
        await expect(turn(page).get_by_text("Needs approval")).to_be_visible()
        await page.goto("/ui/")
        await expect(badge(page, "Chat")).to_be_visible()
        await expect(page.get_by_text("1 chat needs your attention")).to_be_visible()
        await expect(page.get_by_text("1 call needs your approval")).to_be_visible()
        await expect(page).to_have_title(re.compile(r"^\(2\) Home"))
        await page.get_by_role("link", name="Open", exact=True).click()
        await turn(page).get_by_role("button", name="Decline").click()
        await wait_for_turn_end(page)
        await page.goto("/ui/approvals")
        await page.get_by_role("button", name="Decline").click()
        await expect(page).to_have_title(re.compile(r"^Approvals"))


async def test_all_choices_of_a_call_that_needs_approval_are_in_view(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, viewport={"width": 1280, "height": 800}) as context:
        page = context.page
        await begin(page, "say " + "word " * 600)
        await wait_for_turn_end(page)
        await say(page, WRITE)
        # The arguments and the choices are loaded after the call is shown.
        await expect(turn(page).get_by_text("More choices")).to_be_visible()
        await page.wait_for_function("scrollY + innerHeight >= document.documentElement.scrollHeight - 1")
        await turn(page).get_by_role("button", name="Decline").click()
        await wait_for_turn_end(page)


async def test_the_open_page_of_approvals_updates_without_losing_choices(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, "/ui/approvals") as context:
        page = context.page
        items = page.locator("#waiting li")
        await expect(page.get_by_text("Nothing to approve")).to_be_visible()
        call_write_tool(yard)
        await page.evaluate("loadPending()")
        await expect(items).to_have_count(1)
        await items.get_by_text("More choices").click()
        days = items.get_by_label("Always allow this tool until")
        await days.select_option("7")
        await days.focus()
        call_write_tool(yard, "tea")
        await page.evaluate("loadPending()")
        await expect(items).to_have_count(2)
        days = items.first.get_by_label("Always allow this tool until")
        await expect(days).to_be_focused()
        await expect(days).to_have_value("7")
        # Another window answers both.
        other = await page.context.new_page()
        await other.goto("/ui/approvals")
        for _ in range(2):
            await other.get_by_role("button", name="Decline").first.click()
        await expect(other.get_by_text("Nothing to approve")).to_be_visible()
        await page.evaluate("loadPending()")
        await expect(page.get_by_text("Nothing to approve")).to_be_visible()


async def test_a_hidden_page_notifies_once_when_a_chat_waits(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/chat") as context:
        page = context.page
        await page.context.add_init_script(RECORD_NOTIFICATIONS)
        await page.goto("/ui/chat")
        bell = page.locator("[data-notify]")
        await expect(bell).to_have_attribute("aria-pressed", "false")
        await bell.click()
        await expect(bell).to_have_attribute("aria-pressed", "true")
        watcher = await page.context.new_page()
        await watcher.goto("/ui/usage")
        await expect(watcher.locator("[data-notify]")).to_have_attribute("aria-pressed", "true")
        await watcher.evaluate("loadPending()")
        await watcher.evaluate(HIDE)
        await begin(page, WRITE)
        await expect(turn(page).get_by_text("Needs approval")).to_be_visible()
        await expect(badge(page, "Chat")).to_be_visible()
        await watcher.evaluate("loadPending()")
        await watcher.evaluate("loadPending()")
        notices = await watcher.evaluate("notices")
        assert [each.rpartition(": ")[2] for each in notices] == ["This chat is waiting for you."]
        await turn(page).get_by_role("button", name="Decline").click()
        await wait_for_turn_end(page)
        await expect(badge(page, "Chat")).to_have_count(0)


async def test_a_browser_that_blocks_notifications_is_told_of(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/usage") as context:
        page = context.page
        await page.evaluate("Notification.requestPermission = async () => 'denied'")
        await page.locator("[data-notify]").click()
        await expect(page.get_by_role("alert")).to_contain_text("Your browser blocks notifications")
        await expect(page.locator("[data-notify]")).to_have_attribute("aria-pressed", "false")


async def test_the_palette_finds_pages_tools_chats_and_actions_by_keyboard(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard, "/ui/usage") as context:
        page = context.page
        await page.keyboard.press("Control+k")
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("link", name="New chat")).to_be_visible()
        await page.keyboard.type("demo_cou")
        await expect(dialog.get_by_role("link", name="demo_count")).to_be_visible()
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/chat?run=&tool=demo_count")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("zzzz")
        await expect(dialog.get_by_text("Nothing matches “zzzz”.")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await page.keyboard.press("Control+k")
        await page.get_by_label("Search pages, chats").fill("audit")
        await expect(dialog.get_by_role("link", name="New chat")).to_be_hidden()
        await expect(dialog.get_by_role("link", name="Audit log")).to_be_visible()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/admin/audit")


async def test_the_search_works_as_a_page_without_script(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/usage", java_script_enabled=False) as context:
        page = context.page
        await page.get_by_role("link", name="Search").click()
        await page.get_by_label("Search pages, chats").fill("registry")
        await page.get_by_label("Search pages, chats").press("Enter")
        await expect(page.locator("#palette-list").get_by_role("link", name="Registry")).to_be_visible()


async def test_the_navigation_collapses_by_keyboard_and_stays_so(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/usage") as context:
        page = context.page
        collapse = page.get_by_role("button", name="Collapse navigation")
        expand = page.get_by_role("button", name="Expand navigation")
        usage = page.locator("#nav nav").get_by_role("link", name="Usage").first
        wide = (await read_box(usage))["width"]
        await collapse.focus()
        await page.keyboard.press("Enter")
        await expect(expand).to_be_focused()
        await expect(collapse).to_be_hidden()
        assert (await read_box(usage))["width"] < wide / 2
        await expect(usage).to_have_attribute("title", "Usage")
        # The server sends the page in this state: nothing moves when the scripts run.
        response = await page.goto(f"{yard.url}/ui/agents")
        assert response is not None
        assert 'data-nav="closed" data-chats="open"' in await response.text()
        await expect(expand).to_be_visible()
        await page.keyboard.press("Tab")
        await expand.press(" ")
        await expect(collapse).to_be_focused()
        assert (await read_box(usage))["width"] == wide
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(collapse).to_be_hidden()
        await page.get_by_role("button", name="Menu").click()
        await expect(usage).to_be_visible()


async def test_the_list_of_chats_collapses_and_stays_so(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "say Hello.")
        await wait_for_turn_end(page)
        chats, new = page.get_by_role("complementary", name="Chats"), page.locator(".head-new")
        for width in (1200, 1920):
            await page.set_viewport_size({"width": width, "height": 800})
            await expect(chats).to_be_visible()
            await expect(new).to_be_hidden()
            await page.get_by_role("button", name="Collapse chat list").press("Enter")
            await expect(chats).to_be_hidden()
            await expect(page.get_by_role("button", name="Expand chat list")).to_be_focused()
            await page.reload()
            await expect(chats).to_be_hidden()
            await expect(new).to_be_visible()
            await page.get_by_role("button", name="Expand chat list").press("Enter")
            await expect(chats).to_be_visible()
        await page.get_by_role("button", name="Collapse chat list").click()
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(page.get_by_role("button", name="Expand chat list")).to_be_hidden()
        await page.get_by_role("button", name="Chats").click()
        await expect(chats).to_be_visible()
        await page.keyboard.press("Escape")
        await new.click()
        await page.wait_for_url("**/ui/chat")


async def test_panels_collapse_without_script(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard, "/ui/chat", java_script_enabled=False) as context:
        page = context.page
        await page.get_by_role("button", name="Collapse navigation").click()
        await page.get_by_role("button", name="Collapse chat list").click()
        await expect(page.get_by_role("button", name="Expand navigation")).to_be_visible()
        await expect(page.get_by_role("complementary", name="Chats")).to_be_hidden()


async def read_box(locator: Locator) -> FloatRect:
    box = await locator.bounding_box()
    assert box is not None
    return box


async def test_a_chat_shows_the_usage_of_its_context(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as open_context:
        page = open_context.page
        context = page.locator("#context")
        await expect(context).to_be_hidden()
        await begin(page, 'call demo_count {"to": 3}', "then", "say Counted.")
        await wait_for_turn_end(page)
        await context.locator("summary").click()
        await expect(context).to_contain_text("of 32,000 tokens")
        for label in ("Tool definitions and instructions", "Messages", "Tool results"):
            tokens = context.locator("dt", has_text=label).locator("+ dd")
            assert int((await tokens.inner_text()).replace(",", "")) > 0
        words = await context.inner_text()
        await page.reload()
        await context.locator("summary").click()
        await expect(context).to_have_text(re.compile(re.escape(words.split("\n")[0])))


async def test_the_model_writes_the_title_after_the_first_turn(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page = context.page
        await begin(page, "title Counting sheep", "say One, two.")
        await wait_for_turn_end(page)
        await expect(page.locator("#chat-title")).to_have_text("Counting sheep")
        await expect(page.locator(".chat-list .current")).to_contain_text("Counting sheep")
        await expect(turn(page).locator(".cost")).to_contain_text("Title: ")
        await say(page, "say Three.")
        await wait_for_turn_end(page)
        await expect(page.locator("#chat-title")).to_have_text("Counting sheep")
        await page.goto("/ui/usage")
        await expect(page.get_by_text("Titles of chats").first).to_be_visible()
