"""More visible windows of one browser than it opens connections to one server."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, Page, expect
from tests.conftest import ProgramStarter
from tests.web.chat.test_browser import (
    MODEL,
    ChatYard,
    begin,
    is_same_page,
    looking_at,
    say,
    turn,
    wait_for_turn_end,
)

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

WINDOWS = 8
WAIT_FOR_STREAM = """new Promise((resolve) => {
  const check = () => (chatStream.url.includes("wait=false") ? setTimeout(check, 100) : resolve());
  check();
})"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatYard]:
    data, programs = tmp_path_factory.mktemp("windows"), ProgramStarter()
    model = programs(sys.executable, MODEL, "{port}")
    (data / "toolyard.toml").write_text(
        f'[models.fake]\nmodel = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n', "utf-8"
    )
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, model, {})
    programs.stop()


async def open_windows(page: Page, url: str, count: int) -> list[Page]:
    """Open more windows of the page's browser, all of them visible."""
    pages = [await page.context.new_page() for _ in range(count)]
    for other in pages:
        await other.goto(url, wait_until="domcontentloaded")
        await other.evaluate("window.stillThere = true")
    return pages


async def test_many_visible_chats_leave_connections_for_requests(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        await begin(context.page, "say First.")
        await wait_for_turn_end(context.page)
        pages = [context.page, *await open_windows(context.page, context.page.url, WINDOWS - 1)]
        (ninth,) = await open_windows(context.page, f"{yard.url}/ui/chat", 1)
        await begin(ninth, "say From the ninth.")
        await expect(turn(ninth).locator(".md")).to_have_text("From the ninth.")
        await wait_for_turn_end(ninth)
        # Each of them follows the chat, whether it has a stream or asks.
        await say(pages[-1], "say For all.")
        for page in pages:
            await expect((await wait_for_turn_end(page, 1)).locator(".md")).to_have_text("For all.")
            assert await is_same_page(page)
        # Windows that are closed leave their streams to the others.
        for page in pages[:5]:
            await page.close()
        await say(ninth, "say Part one.", "hold", "say Part two.")
        await expect(turn(ninth).locator(".md").last).to_have_text("Part one.")
        yard.release()
        await wait_for_turn_end(ninth)
        for page in [*pages[5:], ninth]:
            await page.evaluate(WAIT_FOR_STREAM)


async def test_many_visible_pages_leave_connections_for_requests(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        post, headers = context.page.request.post, {"Accept": "*/*"}
        server = {"name": "Brief", "url": "https://brief.example/mcp", "choices": [{"kind": "public"}]}
        servers = await (await post("/api/v1/servers", data=server, headers=headers)).json()
        draft = {"server_id": servers["id"], "slug": "brief"}
        instance = await (await post("/api/v1/instances", data=draft, headers=headers)).json()
        pages = await open_windows(context.page, f"{yard.url}/ui/mcp", WINDOWS)
        row = f"#i-{instance['id']}"
        for page in pages:
            await expect(page.locator(row)).to_be_visible()
        await begin(context.page, "say From the ninth.")
        await wait_for_turn_end(context.page)
        # Each of them follows the change, whether it has a stream or is refreshed.
        assert (await context.page.request.delete(f"/api/v1/instances/{instance['id']}", headers=headers)).ok
        for page in pages:
            await expect(page.locator(row)).to_have_count(0, timeout=30_000)
            assert await is_same_page(page)
