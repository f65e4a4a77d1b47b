"""Results to look at: in chats, in the console and on the page of a tool, in a real browser."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect
from tests.conftest import ProgramStarter
from tests.web.pages.test_browser import window

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(300)]

FONT_SIZE = "(one) => getComputedStyle(one).fontSize"
LINES = """(one) => { const range = document.createRange(); range.selectNodeContents(one);
  return range.getClientRects().length; }"""

ROOT = Path(__file__).parent.parent.parent


@dataclass
class ResultYard:
    """A real ``toolyard serve`` with the server of results and a scripted model."""

    url: str


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResultYard]:
    data, programs = tmp_path_factory.mktemp("results"), ProgramStarter()
    model = programs(sys.executable, ROOT / "tests/servers/openai_server.py", "{port}")
    entry = {"command": sys.executable, "args": ["-I", "-S", str(ROOT / "tests/servers/result_server.py")]}
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"r": entry}}), "utf-8")
    (data / "toolyard.toml").write_text(
        f'[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n', "utf-8"
    )
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ResultYard(server_program.url)
    programs.stop()


async def run(page: Page, tool: str, path: str = "") -> Locator:
    """Run a tool in the console, and return the card of the call."""
    await page.goto(f"/ui/chat?run=&tool={tool}")
    if path:
        await page.locator("#console input[name=arg-0]").fill(path)
    await page.locator("#console").get_by_role("button", name="Run", exact=True).last.click()
    await page.wait_for_url("**/ui/chat/*")
    card = page.locator(".tool-card").last
    await expect(card.locator(".pill.good")).to_be_visible()
    return card


async def test_a_table_is_sorted_extended_copied_and_downloaded(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        card = await run(page, "r_rows")
        table = card.locator(".result-table table")
        # Structured content is preferred to the text.
        await expect(table.locator("tbody tr")).to_have_count(100)
        assert await table.evaluate(FONT_SIZE) == "15px"
        await card.get_by_role("link", name="Show more").click()
        await expect(table.locator("tbody tr")).to_have_count(200)
        await table.get_by_role("link", name="size").click()
        await expect(card.locator("th[aria-sort=ascending]")).to_have_text("size")
        await table.get_by_role("link", name="size").click()
        await expect(card.locator("th[aria-sort=descending]")).to_have_text("size")
        await expect(table.locator("tbody tr").first).to_contain_text("999")
        await card.get_by_role("button", name="Copy", exact=True).click()
        clipboard_text = await page.evaluate("navigator.clipboard.readText()")
        assert clipboard_text.splitlines()[0].split("\t") == ["id", "name", "size", "tags"]
        async with page.expect_download() as download:
            await card.get_by_role("link", name="Download CSV").click()
        lines = Path(await (await download.value).path()).read_text("utf-8-sig").splitlines()
        assert len(lines) == 251
        assert lines[:2] == ["id,name,size,tags", '0,ada-0,0,"[""a"", 0]"']
        await card.get_by_role("link", name="Raw").click()
        await expect(card.locator("pre")).to_contain_text("250 people were found.")


async def test_a_tree_is_opened_level_by_level(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        card = await run(page, "r_tree")
        for key in "bcde":
            await expect(card.locator(".tree-key", has_text=key)).to_be_attached()
            summary = card.locator("summary", has=page.locator(f".tree-key:text-is('{key}')"))
            if key != "e" and await summary.evaluate("(one) => !one.parentElement.open"):
                await summary.click()
        await expect(card.get_by_text("the end", exact=True)).to_be_visible()
        await card.locator("summary", has_text="many").click()
        await card.locator(".tree .result-view").get_by_role("link", name="Show more").click()
        await expect(card.locator(".tree .tree-index")).to_have_count(200)


async def test_diffs_and_files_are_highlighted(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        card = await run(open_window.page, "r_diff")
        await expect(card.locator(".result .h-gi")).to_have_text(["+++ b/x.py", "+print(2)"])
        card = await run(open_window.page, "r_read_file", "src/main.py")
        await expect(card.locator(".result .h-kn")).to_have_text("import")
        assert await card.locator(".result pre code").evaluate(FONT_SIZE) == "15px"


async def test_a_picture_is_enlarged_and_one_that_is_none_says_so(
    chromium: Browser, yard: ResultYard
) -> None:
    async with window(chromium, yard, viewport={"width": 1280, "height": 800}) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        card = await run(page, "r_pictures")
        await expect(card.locator(".pictures .chip")).to_have_text("This is not a valid picture")
        await card.get_by_role("link", name="Open picture 1").focus()
        await page.keyboard.press("Enter")
        large = page.locator("#dialog img")
        await expect(large).to_be_visible()
        assert await large.evaluate("(one) => one.width") == 1_200
        await page.keyboard.press("Escape")
        await expect(page.locator("#dialog")).not_to_be_visible()


async def test_hostile_results_do_nothing(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        card = await run(page, "r_hostile")
        for view in ("Table", "Tree", "Raw"):
            await card.get_by_role("link", name=view, exact=True).click()
            await expect(card.get_by_role("link", name=view, exact=True)).to_have_attribute(
                "aria-current", "true"
            )
            await expect(card.locator(".result-view")).to_contain_text("<script>hacked=1</script>")
            await expect(card.locator(".result-view")).to_contain_text(r"abc\u200bdef")
            await expect(card.locator(".result-view")).to_contain_text("12345678901234567890")
        assert await page.evaluate("window.hacked") is None


async def test_a_long_number_is_not_broken_where_there_is_room(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard, viewport={"width": 1280, "height": 800}) as open_window:  # type: ignore[arg-type]
        card = await run(open_window.page, "r_hostile")
        number, text = card.locator("td.number"), card.locator("td", has_text="<script>")
        assert await number.evaluate(LINES) == await text.evaluate(LINES) == 1


@pytest.mark.parametrize("first_answer", ["table", "tree"])
async def test_the_view_that_was_chosen_last_is_shown_even_if_another_is_still_loading(
    chromium: Browser, yard: ResultYard, wait_until: Callable[..., Awaitable[None]], first_answer: str
) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        card = await run(page, "r_hostile")
        held_routes: dict[str, list[Route]] = {"table": [], "tree": []}
        await page.route(
            "**/results/*?view=*",
            lambda route: held_routes[route.request.url.rpartition("=")[2]].append(route),
        )
        for view in ("Table", "Table", "Tree"):
            await card.get_by_role("link", name=view, exact=True).click()
        await wait_until(lambda: all(held_routes.values()))
        for view in sorted(held_routes, key=lambda view: view != first_answer):
            async with page.expect_request_finished(lambda one, view=view: one.url.endswith(view)):
                await held_routes[view][0].continue_()
            # The response of this request comes after that of the other, which the page has handled then.
            await page.evaluate("fetch('/api/v1/me').then((response) => response.text())")
        await expect(card.get_by_role("link", name="Tree", exact=True)).to_have_attribute(
            "aria-current", "true"
        )
        await expect(card.locator(".result-tabs [aria-busy]")).to_have_count(0)
        assert [len(routes) for routes in held_routes.values()] == [1, 1]


async def test_a_result_of_a_model_is_loaded_when_it_is_opened(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await page.goto("/ui/chat")
        await page.get_by_label("Message", exact=True).fill("call r_rows_in_text {}\nthen\nsay done")
        await page.get_by_label("Message", exact=True).press("Enter")
        await page.wait_for_url("**/ui/chat/*")
        await expect(page.locator(".foot-line")).to_be_visible()
        await expect(page.locator(".result table")).to_have_count(0)
        await page.locator(".result > summary").click()
        await expect(page.locator(".result tbody tr")).to_have_count(100)


async def test_the_page_of_a_tool_shows_results_in_the_same_way(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await page.goto("/ui/admin/mcp/files/r/tool?name=rows")
        await page.get_by_role("button", name="Call").click()
        table = page.locator("#result table")
        await expect(table.locator("tbody tr")).to_have_count(100)
        await table.get_by_role("link", name="name").click()
        await expect(page.locator("#result th[aria-sort=ascending]")).to_have_text("name")
        async with page.expect_download() as download:
            await page.locator("#result").get_by_role("link", name="Download CSV").click()
        assert len(Path(await (await download.value).path()).read_text("utf-8-sig").splitlines()) == 251


async def test_a_result_is_read_without_a_script(chromium: Browser, yard: ResultYard) -> None:
    async with window(chromium, yard, java_script_enabled=False) as open_window:  # type: ignore[arg-type]
        page = open_window.page
        await page.goto("/ui/admin/mcp/files/r/tool?name=rows")
        await page.get_by_role("button", name="Call").click()
        await page.get_by_role("link", name="Show more").click()
        await expect(page.locator(".more-line")).to_contain_text("101 to 200 of 250 rows")
        await page.get_by_role("link", name="id", exact=True).click()
        await page.get_by_role("link", name="id", exact=True).click()
        await expect(page.locator("tbody tr").first).to_contain_text("donald-249")
