"""Agents in a real browser: from the navigation to one's tools, and a file that is edited meanwhile."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect
from tests.web.pages.test_browser import BrowserSite, schemes, window, yard

__all__ = ["yard"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("width", [1280, 390])
async def test_an_agent_is_found_and_shows_its_tools(
    chromium: Browser, yard: BrowserSite, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with window(chromium, yard, viewport=size) as open_window:
        page = open_window.page
        await page.goto("/ui/")
        if width < 800:
            await page.get_by_role("button", name="Menu").click()
        await page.get_by_role("navigation", name="Main").get_by_role("link", name="Agents").click()
        await page.get_by_role("link", name="Tidy one", exact=True).click()
        await expect(page.get_by_text("Count what you are given. Say nothing else.")).to_be_visible()
        tools = page.locator("#tools")
        await expect(tools.get_by_text("demo_weekday", exact=True)).to_be_visible()
        await expect(tools.locator(".kind.mcp").first).to_be_visible()
        await expect(tools.locator(".kind.native").first).to_be_visible()
        await expect(tools.get_by_text("'!demo_count'")).to_have_count(0)
        await tools.get_by_role("searchbox").fill("web_fetch")
        await expect(
            tools.get_by_role("listitem").filter(has_text="web_fetch").get_by_text("It is not among")
        ).to_be_visible()
        await expect(tools.get_by_text("demo_weekday", exact=True)).to_be_hidden()
        async for scheme in schemes(page):
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, scheme


async def test_without_script_the_tools_are_one_link_away(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard, java_script_enabled=False) as open_window:
        await open_window.page.goto("/ui/agents/everything")
        await open_window.page.get_by_role("link", name="Show tools").click()
        await expect(open_window.page.get_by_text("demo_weekday", exact=True)).to_be_visible()
