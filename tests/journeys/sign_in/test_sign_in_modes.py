"""Sign-in modes ``none`` and ``proxy`` in a real browser.

``test_team_signs_in.py`` tests passwords, ``tests/web/sign_in/test_browser_sign_in.py`` an identity provider.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Browser, expect

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ANN = {"Remote-User": "ann"}

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


def start_serve(start_program: Any, data: Path, **settings: str) -> str:
    """``toolyard serve``, as a process of its own; its address."""
    env = {f"TOOLYARD_{name.upper()}": value for name, value in settings.items()}
    words = (sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}")
    return start_program(*words, HOME=str(data), **env).url


async def test_on_a_local_machine_sign_in_is_not_needed(
    chromium: Browser, start_program: ProgramStarter, tmp_path: Path
) -> None:
    page = await chromium.new_page(base_url=start_serve(start_program, tmp_path))
    await page.goto("/")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await expect(page.get_by_text("local user")).to_be_visible()
    await page.get_by_role("link", name="Registry", exact=True).click()
    await expect(page.get_by_role("heading", name="Registry", exact=True)).to_be_visible()


async def test_a_user_named_by_the_proxy_is_in_and_an_admin_only_by_the_setting(
    chromium: Browser, start_program: ProgramStarter, tmp_path: Path
) -> None:
    url = start_serve(start_program, tmp_path, people_mode="proxy", trusted_proxies="127.0.0.1", admins="ann")
    ann = await chromium.new_context(base_url=url, extra_http_headers=ANN)
    page = await ann.new_page()
    await page.goto("/ui/")
    await expect(page.get_by_role("link", name="Registry", exact=True)).to_be_visible()

    bob = await chromium.new_context(base_url=url, extra_http_headers={"Remote-User": "bob"})
    page = await bob.new_page()
    await page.goto("/ui/")
    await expect(page.get_by_role("link", name="bob")).to_be_visible()
    await expect(page.get_by_role("link", name="Registry", exact=True)).to_have_count(0)
    answer = await page.goto("/ui/admin/mcp")
    assert answer is not None
    assert answer.status == 404

    nobody = await chromium.new_context(base_url=url)
    page = await nobody.new_page()
    answer = await page.goto("/ui/mcp")
    assert answer is not None
    assert answer.status == 401
    await expect(page.get_by_role("main")).to_contain_text(re.compile("proxy", re.IGNORECASE))


async def test_a_name_from_an_untrusted_proxy_is_refused(
    chromium: Browser, start_program: ProgramStarter, tmp_path: Path
) -> None:
    url = start_serve(start_program, tmp_path, people_mode="proxy", trusted_proxies="192.0.2.7", admins="ann")
    forger = await chromium.new_context(base_url=url, extra_http_headers=ANN)
    page = await forger.new_page()
    for path in ("/ui/", "/ui/admin/mcp", "/api/v1/me"):
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 403
    await page.goto("/ui/")
    await expect(page.get_by_role("main")).to_contain_text("trusted_proxies")
