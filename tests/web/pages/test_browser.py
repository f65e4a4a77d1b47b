"""Pages in a real browser: a quiet console, by keyboard alone, live, light and dark, on a phone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect
from tests.conftest import ListeningProgram, ProgramStarter
from tests.demo_data import ROOT, fill, write_files
from tests.screenshots import pages

from toolyard.config.settings.table import Settings
from toolyard.registry import Registry
from toolyard.store import Database
from toolyard.types.registry import InstanceDraft, ServerDraft

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class BrowserSite:
    """A real ``toolyard serve`` with something in it, and the servers behind it."""

    url: str
    ids: dict[str, str]
    words: ListeningProgram

    def post(self, path: str, body: object = None, method: str = "POST") -> bytes:
        """Somebody else's program does something; what it is answered."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "*/*", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        return urllib.request.urlopen(request, timeout=30).read()


async def _fill(data: Path, docs: str, words: str) -> dict[str, str]:
    ids = await fill(data, docs)
    database = await Database.open(data, url=None, secret_key=None)
    registry = Registry(database.registry, Settings())
    server = await registry.add_server(ServerDraft("Words", f"{words}/mcp", private_addresses=True))
    instance = await registry.create_instance("local", InstanceDraft(server.id, None, "words", "Words"))
    await database.close()
    return {**ids, "Words": server.id, "words": instance.id}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserSite]:
    data, programs = tmp_path_factory.mktemp("yard"), ProgramStarter()
    docs = programs(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}")
    words = programs(sys.executable, ROOT / "tests/servers/hostile_markup_server.py", "{port}")
    write_files(data)
    ids = asyncio.run(_fill(data, f"{docs.url}/mcp", words.url))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield BrowserSite(server_program.url, ids, words)
    programs.stop()


@dataclass
class BrowserWindow:
    """A browser window, and what its console complained of."""

    page: Page
    said: list[str] = field(default_factory=list[str])


@contextlib.asynccontextmanager
async def window(chromium: Browser, yard: BrowserSite, **options: object) -> AsyncIterator[BrowserWindow]:
    context: BrowserContext = await chromium.new_context(base_url=yard.url, **options)  # type: ignore[arg-type]
    context.set_default_timeout(60_000)
    browser_window = BrowserWindow(await context.new_page())
    browser_window.page.on(
        "console",
        lambda each: browser_window.said.append(each.text) if each.type in ("error", "warning") else None,
    )
    browser_window.page.on("pageerror", lambda error: browser_window.said.append(str(error)))
    yield browser_window
    await context.close()
    assert browser_window.said == []


async def wait_for_late_parts(page: Page) -> None:
    """Until the parts that come later are there."""
    await expect(page.locator("[data-load][aria-busy]")).to_have_count(0)


def everything(yard: BrowserSite) -> list[str]:
    """Every page, and those with hostile words."""
    page_paths = {name: path for name, path in pages(yard.ids).items() if name != "not-found"}
    return [
        *page_paths.values(),
        f"/ui/mcp/{yard.ids['words']}",
        f"/ui/mcp/{yard.ids['words']}/tool?name=echo",
        f"/ui/admin/mcp/{yard.ids['Words']}",
    ]


async def schemes(page: Page) -> AsyncIterator[str]:
    """The page as it is, in light and in dark colours: it follows the system without being loaded again."""
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        yield scheme


# Every page.


@pytest.mark.parametrize("width", [1280, 360])
async def test_no_page_complains_or_is_wider_than_the_window(
    chromium: Browser, yard: BrowserSite, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with window(chromium, yard, viewport=size) as open_window:
        for path in everything(yard):
            await open_window.page.goto(path)
            await wait_for_late_parts(open_window.page)
            async for scheme in schemes(open_window.page):
                wide = await open_window.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, scheme)
            assert await open_window.page.evaluate("window.hacked") is None, path
            assert open_window.said == [], path


async def test_a_long_word_in_the_log_is_broken_and_a_moment_is_not(
    chromium: Browser, yard: BrowserSite
) -> None:
    server = {"name": "W" * 80, "url": f"https://{'w' * 60}.example/mcp", "choices": [{"kind": "public"}]}
    document = json.loads(yard.post("/api/v1/servers", server))
    async with window(chromium, yard) as open_window:
        await open_window.page.goto("/ui/admin/audit")
        await expect(open_window.page.locator("#list")).to_contain_text("W" * 80)
        assert await open_window.page.evaluate("document.documentElement.scrollWidth") <= 1280
        box = await open_window.page.locator("#list time").first.bounding_box()
        assert box is not None
        assert box["width"] > box["height"]
    yard.post(f"/api/v1/servers/{document['id']}", method="DELETE")


CONTRAST = """() => {
  const curve = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const channel = (part) => curve(part / 255);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, behind = [];
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest(".visually-hidden, .skip, :disabled, option")) continue;
    for (let each = node; each; each = each.parentElement) {
      behind.unshift(getComputedStyle(each).backgroundColor);
    }
    const [back, front] = [over(behind), over([...behind, getComputedStyle(node).color])].map(light);
    const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return found;
}"""


async def test_all_text_has_sufficient_contrast(chromium: Browser, yard: BrowserSite) -> None:
    docs = f"/ui/mcp/{yard.ids['docs']}"
    async with window(chromium, yard) as open_window:
        for path in ("/ui/dev/parts", "/ui/", "/ui/admin/mcp", docs, "/ui/tokens", "/ui/connect"):
            await open_window.page.goto(path)
            await wait_for_late_parts(open_window.page)
            async for scheme in schemes(open_window.page):
                assert await open_window.page.evaluate(CONTRAST) == [], (path, scheme)


# By keyboard.


async def reach(page: Page, name: str, role: str = "") -> None:
    """Press Tab until something of this name has the focus, and see that it can be seen to have it."""
    for _ in range(80):
        await page.keyboard.press("Tab")
        value = await page.evaluate(
            """() => {
              const one = document.activeElement;
              const ring = getComputedStyle(one).outlineStyle !== "none";
              const text = one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent;
              return [text.trim(), ring, one.checkVisibility()];
            }"""
        )
        if name in value[0]:
            assert value[1], f"{name} has the focus, and nothing shows it"
            assert value[2]
            return
    raise AssertionError(f"Tab does not lead to {name}")


async def test_the_main_flow_works_by_keyboard_alone(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await reach(page, "New instance")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/mcp/new")
        await reach(page, "Search servers")
        await page.keyboard.type("library")
        await expect(page.locator(".tile")).to_have_count(1)
        await reach(page, "Library docs")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/mcp/new?server=*")
        await reach(page, "Slug")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("docs")
        await expect(page.locator("#slug-error")).to_contain_text("You have an instance with this slug")
        await page.keyboard.type("-keys")
        await expect(page.locator("#slug-error")).to_be_hidden()
        await expect(page.locator("[data-mirror]")).to_have_text("docs-keys")
        await reach(page, "Name")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("By keys")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("By keys")
        await expect(page.locator("#tool-list > li")).to_have_count(3)
        await reach(page, "More about By keys")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Escape")
        await expect(page.locator("details.more summary")).to_be_focused()
        await page.keyboard.press("Enter")
        await reach(page, "Delete")
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog h1")).to_have_text("Delete “By keys”?")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_be_hidden()
        await expect(page.locator("details.more summary")).to_be_focused()
        await page.keyboard.press("Enter")
        await reach(page, "Delete")
        await page.keyboard.press("Enter")
        await expect(page.locator("dialog")).to_be_visible()
        await reach(page, "Delete")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/mcp")
        await expect(page.locator("#flash")).to_contain_text("“By keys” was deleted.")


async def test_the_confirmation_of_the_last_click_is_shown(chromium: Browser, yard: BrowserSite) -> None:
    """A late response of an earlier click must not put another object behind the button."""
    github, words = (f"/ui/admin/mcp/{yard.ids[name]}/delete" for name in ("GitHub", "Words"))
    request_received, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        request_received.set()
        await released.wait()
        await route.continue_()

    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/mcp")
        await page.route(f"**{github}", hold)
        await page.locator(f"a[href='{github}']").dispatch_event("click")
        await asyncio.wait_for(request_received.wait(), 30)
        await page.locator(f"a[href='{words}']").dispatch_event("click")
        await expect(page.locator("dialog h1")).to_have_text("Delete “Words”?")
        async with page.expect_response(f"**{github}"):
            released.set()
        await page.evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
        await expect(page.locator("dialog h1")).to_have_text("Delete “Words”?")


async def test_a_form_that_is_refused_leads_to_its_errors(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/mcp/new")
        await page.get_by_label("Name", exact=True).fill("Bad")
        await page.get_by_label("URL").fill("nothing")
        await page.keyboard.press("Enter")
        await expect(page.locator("[role=alert]")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("URL")).to_have_value("nothing")
        open_window.said[:] = [each for each in open_window.said if "422" not in each]


# Without a reload.


async def is_same_page(page: Page) -> bool:
    return await page.evaluate("window.stillThere === true")


async def test_status_changes_without_a_reload(chromium: Browser, yard: BrowserSite) -> None:
    id_ = yard.ids["words"]
    async with window(chromium, yard) as open_window:
        page = open_window.page
        for path in ("/ui/mcp", f"/ui/mcp/{id_}"):
            await page.goto(path)
            await wait_for_late_parts(page)
            await page.evaluate("window.stillThere = true")
            row = page.locator(f"#i-{id_}")
            await expect(row.locator(".pill")).to_have_text("Ready")
            urllib.request.urlopen(f"{yard.words.url}/down").read()
            yard.post(f"/api/v1/instances/{id_}/test")
            await expect(row.locator(".pill")).to_have_text("Failed")
            await expect(row).to_contain_text("503")
            await expect(page.locator("#announcements")).to_have_text("Words: Failed")
            urllib.request.urlopen(f"{yard.words.url}/up").read()
            yard.post(f"/api/v1/instances/{id_}/test")
            await expect(row.locator(".pill")).to_have_text("Ready")
            assert await is_same_page(page), path


async def test_a_search_stays_while_status_changes(chromium: Browser, yard: BrowserSite) -> None:
    id_ = yard.ids["words"]
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        await page.get_by_label("Search instances").fill("words")
        await expect(page.locator(".rows > li")).to_have_count(1)
        await expect(page.locator("#count")).to_have_text("1 instance")
        for way, state in (("down", "Failed"), ("up", "Ready")):
            urllib.request.urlopen(f"{yard.words.url}/{way}").read()
            yard.post(f"/api/v1/instances/{id_}/test")
            await expect(page.locator(f"#i-{id_} .pill")).to_have_text(state)
            await expect(page.locator(".rows > li")).to_have_count(1)
        await page.reload()
        await expect(page.get_by_label("Search instances")).to_have_value("words")
        await expect(page.locator(".rows > li")).to_have_count(1)


HIDE = """() => {
  Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
  Object.defineProperty(document, "hidden", { value: true, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SHOW = """() => {
  delete document.visibilityState;
  delete document.hidden;
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_changes_in_a_background_window_are_there_when_it_is_shown(
    chromium: Browser, yard: BrowserSite
) -> None:
    server = {"name": "Brief", "url": "https://brief.example/mcp", "choices": [{"kind": "public"}]}
    document = json.loads(yard.post("/api/v1/servers", server))
    own_document = json.loads(yard.post("/api/v1/instances", {"server_id": document["id"], "slug": "brief"}))
    async with window(chromium, yard) as open_window:
        page = open_window.page
        async with page.expect_response("**/api/v1/events"):
            await page.goto("/ui/mcp")
        await expect(page.locator(f"#i-{own_document['id']}")).to_be_visible()
        await page.evaluate(HIDE)
        yard.post(f"/api/v1/instances/{own_document['id']}", method="DELETE")
        yard.post(f"/api/v1/servers/{document['id']}", method="DELETE")
        await page.evaluate(SHOW)
        await expect(page.locator(f"#i-{own_document['id']}")).to_have_count(0)


async def test_the_home_page_follows_too(chromium: Browser, yard: BrowserSite) -> None:
    id_ = yard.ids["words"]
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/")
        await page.evaluate("window.stillThere = true")
        urllib.request.urlopen(f"{yard.words.url}/down").read()
        yard.post(f"/api/v1/instances/{id_}/test")
        await expect(page.locator("#next")).to_contain_text("“Words” failed")
        await expect(page.locator(f"#i-{id_} .pill")).to_have_text("Failed")
        urllib.request.urlopen(f"{yard.words.url}/up").read()
        yard.post(f"/api/v1/instances/{id_}/test")
        await expect(page.locator("#next")).not_to_contain_text("Words")
        assert await is_same_page(page)


async def test_a_restart_of_a_files_server_is_followed_live(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/mcp/files/demo")
        await wait_for_late_parts(page)
        before = await page.locator("dl").first.text_content() or ""
        await page.evaluate("window.stillThere = true")
        yard.post("/api/v1/servers/demo/restart")
        await expect(page.locator("dl").first).not_to_have_text(before)
        await expect(page.locator("dl .pill").first).to_have_text("Ready")
        assert await is_same_page(page)


async def test_one_press_changes_one_row(chromium: Browser, yard: BrowserSite) -> None:
    id_ = yard.ids["docs"]
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        await page.evaluate("window.stillThere = true")
        row = page.locator(f"#i-{id_}")
        await row.get_by_role("button", name="Test").click()
        await expect(page.locator("#flash")).to_contain_text("is working: 3 tools")
        await row.locator("summary").click()
        await row.get_by_role("button", name="Disable").click()
        await expect(row.locator(".pill")).to_have_text("Disabled")
        await expect(page.locator("#flash")).to_contain_text("is disabled")
        await row.locator("summary").click()
        await row.get_by_role("button", name="Enable").click()
        await expect(row.locator(".pill")).to_have_text("Ready")
        await page.get_by_role("button", name="Dismiss").click()
        await expect(page.locator("#flash")).to_be_empty()
        assert await is_same_page(page)


async def test_a_press_is_not_lost_when_the_row_changes_under_it(
    chromium: Browser, yard: BrowserSite
) -> None:
    id_, request_received, answer = yard.ids["words"], asyncio.Event(), asyncio.Event()

    async def hold_request(route: Route) -> None:
        request_received.set()
        await answer.wait()
        await route.continue_()

    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        row = page.locator(f"#i-{id_}")
        await expect(row.locator(".pill")).to_have_text("Ready")
        await page.route("**/ui/mcp", hold_request)
        urllib.request.urlopen(f"{yard.words.url}/down").read()
        yard.post(f"/api/v1/instances/{id_}/test")
        await asyncio.wait_for(request_received.wait(), 30)
        await row.get_by_role("button", name="Test").hover()
        await page.mouse.down()
        async with page.expect_response("**/ui/mcp") as response:
            answer.set()
        await (await response.value).finished()
        # Whatever the page does with it at once is done.
        await page.evaluate("new Promise((done) => setTimeout(done, 50))")
        await page.mouse.up()
        await expect(page.locator("#flash")).to_contain_text("down for repairs")
        urllib.request.urlopen(f"{yard.words.url}/up").read()
        # The first may get what one that began before came to.
        for _ in range(2):
            yard.post(f"/api/v1/instances/{id_}/test")
        await expect(row.locator(".pill")).to_have_text("Ready")


async def test_the_last_search_is_shown_though_it_was_answered_first(
    chromium: Browser, yard: BrowserSite
) -> None:
    request_received, answer = asyncio.Event(), asyncio.Event()

    async def hold_request(route: Route) -> None:
        request_received.set()
        await answer.wait()
        await route.continue_()

    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        await page.route("**/ui/mcp?q=library", hold_request)
        await page.get_by_label("Search instances").fill("library")
        await asyncio.wait_for(request_received.wait(), 30)
        await page.get_by_label("Search instances").fill("words")
        await expect(page.locator(".rows > li")).to_have_count(1)
        async with page.expect_response("**/ui/mcp?q=library") as late:
            answer.set()
        await (await late.value).finished()
        # Whatever the page does with it at once is done.
        await page.evaluate("new Promise((done) => setTimeout(done, 50))")
        await expect(page.locator(f"#i-{yard.ids['words']}")).to_be_visible()
        assert page.url.endswith("/ui/mcp?q=words")


async def test_tools_are_filtered_while_one_types_and_picked(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto(f"/ui/mcp/{yard.ids['docs']}")
        await wait_for_late_parts(page)
        visible_tools = page.locator("#tool-list > li:visible")
        await expect(visible_tools).to_have_count(3)
        await page.get_by_label("Filter 3 tools").fill("question")
        await expect(visible_tools).to_have_count(1)
        await expect(page.locator("#announcements")).to_have_text("1 shown")
        await expect(page.locator(".pick").first).to_be_hidden()
        await page.get_by_label("Only selected").check()
        await page.get_by_label("Filter 3 tools").fill("")
        await expect(visible_tools).to_have_count(3)
        await page.get_by_role("button", name="Clear").click()
        await page.get_by_label("Enable query-docs").check()
        await page.get_by_role("button", name="Save selection").click()
        await expect(page.locator("#flash")).to_contain_text("1 tool enabled")
        await wait_for_late_parts(page)
        await expect(page.locator("#tools .cost").first).to_contain_text("1 of 3 usable")
        await page.get_by_label("All", exact=False).first.check()
        await page.get_by_role("button", name="Save selection").click()
        await expect(page.locator("#flash")).to_contain_text("All tools enabled")


async def test_a_tool_is_tried_in_place(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto(f"/ui/mcp/{yard.ids['docs']}/tool?name=query-docs")
        await page.evaluate("window.stillThere = true")
        await page.get_by_label("library_id").fill("/docs/x")
        await page.get_by_label("topic").fill("<script>window.hacked = true</script>")
        await page.get_by_role("button", name="Call").click()
        await expect(page.locator("#result")).to_contain_text("read the manual")
        await expect(page.get_by_label("library_id")).to_have_value("/docs/x")
        assert await is_same_page(page)
        assert await page.evaluate("window.hacked") is None


async def test_ways_to_sign_in_are_added_in_place(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/mcp/new")
        await page.get_by_label("Name", exact=True).fill("typed already")
        await page.get_by_role("button", name="Add sign-in method").click()
        await expect(page.locator("fieldset.choice")).to_have_count(2)
        await expect(page.locator("#choices-1-kind")).to_be_focused()
        await expect(page.locator("#choices-1-key")).to_be_visible()
        await expect(page.locator("#choices-1-client_id")).to_be_hidden()
        await page.locator("#choices-1-kind").select_option("oauth")
        await page.locator("#choices-1-registration").select_option("entered")
        await expect(page.locator("#choices-1-client_id")).to_be_visible()
        await expect(page.get_by_label("Name", exact=True)).to_have_value("typed already")
        await page.get_by_role("button", name="Remove").last.click()
        await expect(page.locator("fieldset.choice")).to_have_count(1)
        await expect(page.get_by_role("button", name="Add sign-in method")).to_be_focused()


async def test_the_check_of_a_slug_survives_a_page_that_has_changed(
    chromium: Browser, yard: BrowserSite
) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        answered = asyncio.Event()

        async def answer_late(route: Route) -> None:
            await page.get_by_role("link", name="Cancel").evaluate(
                "link => link.closest('main').innerHTML = ''"
            )
            await route.continue_()
            answered.set()

        await page.route("**/ui/mcp/slug?*", answer_late)
        await page.goto(f"/ui/mcp/{yard.ids['words']}/edit")
        async with page.expect_response("**/ui/mcp/slug?*"):
            await page.get_by_label("Slug").fill("other")
        await answered.wait()
        assert (
            await page.evaluate(
                "new Promise((done) => setTimeout(() => done($('#announcements').textContent), 50))"
            )
            == ""
        )


async def test_relative_times_go_on_while_a_page_is_open(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.clock.install()
        await page.goto(f"/ui/mcp/{yard.ids['words']}")
        moment = page.locator("dl time").first
        await expect(moment).to_have_text(re.compile(r"just now|\d+ (s|min) ago"))
        await page.clock.fast_forward(3 * 3600 * 1000)
        await expect(moment).to_have_text("3 h ago")
        await expect(page.locator("#tools .cost").first).to_contain_text("checked 3 h ago")
        await page.goto("/ui/admin/mcp")
        await page.locator("#list .row-main a").first.click()
        await expect(page.locator("#contents .cost").first).to_have_text(re.compile("^Checked "))
        # The server's clock did not go on.
        await expect(page.locator("#contents .cost").first).to_have_text("Checked 3 h ago")


async def test_the_token_can_be_copied(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard, permissions=["clipboard-read", "clipboard-write"]) as open_window:
        page = open_window.page
        await page.goto("/ui/tokens")
        await page.get_by_label("Name").fill("copied")
        await page.get_by_role("button", name="Create token").click()
        text = await page.locator("#token-text").input_value()
        await page.locator(".copy-field button").click()
        await expect(page.locator("#announcements")).to_have_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == text
        request = urllib.request.Request(f"{yard.url}/api/v1/me", headers={"Authorization": f"Bearer {text}"})
        assert json.loads(urllib.request.urlopen(request).read())["token"]["rights"] == ["read", "call"]


async def test_over_plain_http_the_token_can_be_copied_too(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        # As browsers have it where a page came unencrypted from another machine.
        await page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        await page.goto("/ui/tokens")
        await page.get_by_label("Name").fill("copied by hand")
        await page.get_by_role("button", name="Create token").click()
        text = await page.locator("#token-text").input_value()
        await page.locator(".copy-field button").click()
        await expect(page.locator("#announcements")).to_have_text("Copied")
        await page.get_by_label("Name").fill("")
        await page.get_by_label("Name").press("Control+v")
        await expect(page.get_by_label("Name")).to_have_value(text)


async def test_a_snippet_follows_the_selection_and_can_be_copied(
    chromium: Browser, yard: BrowserSite
) -> None:
    async with window(chromium, yard, permissions=["clipboard-read", "clipboard-write"]) as open_window:
        page = open_window.page
        await page.goto("/ui/")
        await page.get_by_role("link", name="Clients", exact=True).click()
        await page.get_by_role("link", name="Cursor").click()
        await page.wait_for_url("**/ui/connect?client=cursor")
        await page.get_by_label("Access", exact=True).select_option("server/demo")
        await expect(page.get_by_label("URL", exact=True)).to_have_value(f"{yard.url}/mcp/servers/demo")
        await page.get_by_role("button", name="Copy the entry", exact=True).click()
        await expect(page.locator("#announcements")).to_have_text("Copied")
        document = json.loads(await page.evaluate("navigator.clipboard.readText()"))
        assert document == {"mcpServers": {"toolyard": {"url": f"{yard.url}/mcp/servers/demo"}}}
        await page.get_by_role("link", name="VS Code").click()
        await expect(page.get_by_label("Access", exact=True)).to_have_value("server/demo")


# Light and dark, wide and narrow, with and without script.


async def test_colours_follow_the_system_until_one_chooses(chromium: Browser, yard: BrowserSite) -> None:
    background = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    async with window(chromium, yard, color_scheme="dark") as open_window:
        page = open_window.page
        await page.goto("/ui/")
        dark = await page.evaluate(background)
        await page.emulate_media(color_scheme="light")
        light = await page.evaluate(background)
        assert light != dark
        await page.get_by_role("button", name="Dark").click()
        assert await page.evaluate(background) == dark
        await page.goto("/ui/tokens")
        assert await page.evaluate(background) == dark
        await expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="System").click()
        assert await page.evaluate(background) == light


async def test_on_a_phone_the_menu_opens_and_closes(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard, viewport={"width": 390, "height": 844}, has_touch=True) as open_window:
        page = open_window.page
        await page.goto("/ui/")
        await expect(page.get_by_role("link", name="Registry")).to_be_hidden()
        await page.get_by_role("button", name="Menu").tap()
        await page.get_by_role("link", name="Registry").tap()
        await page.wait_for_url("**/ui/admin/mcp")
        await page.locator("details.more summary").first.tap()
        menu = page.locator("details.more[open] .more-menu")
        box = await menu.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390


async def test_without_script_everything_is_still_there(chromium: Browser, yard: BrowserSite) -> None:
    async with window(
        chromium, yard, java_script_enabled=False, viewport={"width": 390, "height": 844}
    ) as open_window:
        page = open_window.page
        await page.goto(f"/ui/mcp/{yard.ids['docs']}")
        await page.get_by_role("link", name="Load tools").click()
        await expect(page.locator("#tool-list > li")).to_have_count(3)
        await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("button", name="Dark").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.goto("/ui/mcp?q=docs")
        await expect(page.get_by_role("button", name="Search")).to_be_visible()
        await page.locator("details.more summary").first.click()
        await page.get_by_role("link", name="Delete").first.click()
        await expect(page.locator("h1")).to_contain_text("Delete")
        await page.get_by_role("link", name="Cancel").click()
        await expect(page.locator("h1")).to_have_text("Library docs")


async def test_a_press_on_a_later_page_stays_there(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/mcp")
        await page.get_by_label("Search instances").fill("library")
        await expect(page.locator(".rows > li")).to_have_count(1)
        await page.get_by_role("button", name="Test").click()
        await expect(page.locator("#flash")).to_contain_text("is working: 3 tools")
        await expect(page.locator(".rows > li")).to_have_count(1)
        assert page.url.endswith("/ui/mcp?q=library")
