"""Signing in as people do: a real browser, a real identity provider, a process of our own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
from playwright.async_api import Browser, ConsoleMessage, Page
from tests.ports import free_port
from yarl import URL

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter
    from tests.web.conftest import Starting

ROOT = Path(__file__).parents[3]
MODULES = ROOT / ".envs/node/node_modules"
PASSWORD = "correct horse battery staple"

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


async def _page(chromium: Browser, url: str) -> tuple[Page, list[str]]:
    """A new browser, and what its console complained of on our pages."""
    page, page_texts = await (await chromium.new_context()).new_page(), list[str]()

    def hear(each: ConsoleMessage) -> None:
        if each.type in ("error", "warning") and each.location["url"].startswith(url):
            page_texts.append(each.text)

    page.on("console", hear)
    return page, page_texts


async def test_the_first_admin_sets_a_password_signs_out_and_in_again(
    serve: Starting, chromium: Browser
) -> None:
    site = await serve(TOOLYARD_PEOPLE_MODE="password")
    link = re.search(r"http://\S+/ui/invite/\S+", site.process.stdout.readline() + site.errors)
    assert link is not None
    page, page_texts = await _page(chromium, site.url)
    await page.goto(link[0])
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("Repeat password").fill(PASSWORD)
    await page.get_by_role("button", name="Set password and sign in").click()
    await page.wait_for_url("**/ui/")
    await page.goto(f"{site.url}/ui/account")
    await page.get_by_role("button", name="Sign out everywhere").click()
    await page.wait_for_url("**/ui/sign-in")
    await page.goto(f"{site.url}/ui/admin/people")
    await page.wait_for_url("**/ui/sign-in?next=*")
    await page.get_by_label("Name").fill("Admin")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/admin/people")
    assert not page_texts


async def test_people_sign_in_at_the_provider_and_come_back_where_they_wanted_to_be(
    serve: Starting, start_program: ProgramStarter, chromium: Browser
) -> None:
    if not (MODULES / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed; make unit installs it")
    port = free_port()
    callback = f"http://127.0.0.1:{port}/ui/oidc/callback"
    program = ROOT / "tests/accounts/oidc.mjs"
    issuer = start_program("node", program, "{port}", MODULES, callback, "client_secret_basic").url
    site = await serve(
        {},
        "--port",
        str(port),
        TOOLYARD_PEOPLE_MODE="oidc",
        TOOLYARD_OIDC_ISSUER=issuer,
        TOOLYARD_OIDC_CLIENT_ID="toolyard: team",
        TOOLYARD_OIDC_CLIENT_SECRET="a secret/with + odd: characters%",
        TOOLYARD_ADMINS="ann@example.org",
    )
    page, page_texts = await _page(chromium, site.url)
    await page.goto(f"{site.url}/ui/admin/people?q=1")
    await page.get_by_role("link", name="Sign in with").click()
    await _agree(page, "ann", "**/ui/admin/people?q=1")
    await page.goto(f"{site.url}/ui/account")
    assert "ann" in await page.inner_text("main")
    assert "Admin" in await page.inner_text("main")
    assert not page_texts

    other, _ = await _page(chromium, site.url)
    await other.goto(f"{site.url}/ui/sign-in")
    await other.get_by_role("link", name="Sign in with").click()
    await _agree(other, "eve", "**/ui/")
    await other.goto(f"{site.url}/ui/account")
    words = await other.inner_text("main")
    assert "User" in words.split()
    assert "eve" in words, "whom an admin would have to name is shown"
    answer = await other.goto(f"{site.url}/ui/admin/people")
    assert answer is not None
    assert answer.status == 404

    await _callbacks_that_are_none(site.url, issuer)


async def _agree(page: Page, name: str, to: str) -> None:
    await page.fill("input[name=login]", name)
    await page.fill("input[name=password]", "x")
    await page.click("button[type=submit]")
    await page.wait_for_load_state()
    await page.click("button[type=submit]")
    await page.wait_for_url(to)


async def _callbacks_that_are_none(url: str, issuer: str) -> None:
    jars = [aiohttp.CookieJar(unsafe=True) for _ in range(2)]
    async with (
        aiohttp.ClientSession(cookie_jar=jars[0]) as one,
        aiohttp.ClientSession(cookie_jar=jars[1]) as two,
    ):

        async def begin(to: str) -> URL:
            at = URL(f"{url}/ui/sign-in/oidc").with_query(next=to)
            async with one.get(at, allow_redirects=False) as answer:
                assert answer.status == 303
                return URL(answer.headers["Location"], encoded=True)

        async def back(session: aiohttp.ClientSession, **query: str) -> tuple[int, str]:
            at = URL(f"{url}/ui/oidc/callback").with_query(query)
            async with session.get(at, allow_redirects=False) as answer:
                return answer.status, await answer.text()

        going = await begin("https://evil.example/")
        assert str(going).startswith(f"{issuer}/auth?")
        assert going.query["redirect_uri"] == f"{url}/ui/oidc/callback"
        assert "evil" not in str(going)
        async with one.get(f"{url}/ui/oidc/callback?state={going.query['state']}&state=x&code=y") as answer:
            assert (answer.status, "unknown" in await answer.text()) == (403, True)
        for session, query, words in (
            (one, {}, "unknown"),
            (one, {"state": "x", "code": "y"}, "unknown"),
            (two, {"state": going.query["state"], "code": "y"}, "another browser"),
            (one, {"state": going.query["state"], "code": "y"}, "unknown"),
            (
                one,
                {"state": (await begin("/ui/")).query["state"], "code": "y", "iss": issuer},
                "no longer accepts",
            ),
            (
                one,
                {"state": (await begin("/ui/")).query["state"], "error": "access_denied", "iss": issuer},
                "refused",
            ),
            (
                one,
                {"state": (await begin("/ui/")).query["state"], "iss": "https://evil.example"},
                "the configured identity",
            ),
        ):
            status, text = await back(session, **query)
            assert (status, words in text) == (403, True), (query, text[-1500:])
        async with one.get(f"{url}/api/v1/me") as answer:
            assert answer.status == 401
