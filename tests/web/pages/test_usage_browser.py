"""The usage page with large numbers, in a real browser."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser
from tests.conftest import ProgramStarter
from tests.web.pages.test_browser import BrowserSite, window

from toolyard.store import Database
from toolyard.types.audit import AuditEntry

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(300)]

CUT_CELLS = """() => [...document.querySelectorAll("#usage td, #usage thead th")]
  .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"""
BROKEN_NUMBERS = """() => [...document.querySelectorAll("#usage td")].filter((cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return range.getClientRects().length > 1;
}).map((cell) => cell.textContent)"""


async def fill(data: Path) -> None:
    """Record requests of a million tokens, and of a thousand times as many."""
    database = await Database.open(data, url=None, secret_key=None)
    for model, tokens, cost in (("small", 9_871_234, 1_234.5), ("large", 9_871_234_000, 123_456.5)):
        details = {"input_tokens": tokens, "output_tokens": 1, "cost": cost, "agent": model}
        await database.audit.write(
            AuditEntry(time.time(), "model.request", "local", target=model, details=details)
        )
    await database.close()


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserSite]:
    data, programs = tmp_path_factory.mktemp("usage"), ProgramStarter()
    asyncio.run(fill(data))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield BrowserSite(server_program.url, {}, server_program)
    programs.stop()


@pytest.mark.parametrize("width", [390, 768, 900, 1024, 1100, 1280])
async def test_numbers_fit_into_one_line(chromium: Browser, yard: BrowserSite, width: int) -> None:
    async with window(chromium, yard, viewport={"width": width, "height": 800}) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/usage")
        await page.get_by_text("Numbers per day").click()
        assert await page.evaluate(BROKEN_NUMBERS) == []
        assert await page.evaluate(CUT_CELLS) == []
