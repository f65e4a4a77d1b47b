"""Adding a server by its address alone, in a real browser: open, with OAuth, and with an API key."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.journeys.conftest import ROOT

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]


@pytest_asyncio.fixture(loop_scope="session")
async def page(chromium: Browser, start_program: ProgramStarter, tmp_path: Path) -> AsyncIterator[Page]:
    """The page to add a server, of a Toolyard with one local user and without servers."""
    words = (sys.executable, "-m", "toolyard", "--data-dir", tmp_path, "serve", "--port", "{port}")
    url = start_program(*words, HOME=str(tmp_path)).url
    context = await chromium.new_context(
        base_url=url,
        permissions=["clipboard-read", "clipboard-write"],
        viewport={"width": 390, "height": 800},
    )
    context.set_default_timeout(60_000)
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto("/ui/admin/mcp/new")
    yield page
    await context.close()
    assert complaints == []


@pytest.fixture
def guarded_server(start_program: ProgramStarter) -> str:
    """A server that demands a token of its own authorization server, which agrees to everything."""
    return start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url


async def add(page: Page, url: str) -> None:
    """Enter the address, and approve that it is on this machine."""
    await page.get_by_label("URL", exact=True).fill(url)
    await page.get_by_role("button", name="Add server").click()
    await expect(page.get_by_text("127.0.0.1 is a private address")).to_be_visible()
    await expect(page.get_by_label("URL", exact=True)).to_have_value(url)
    await page.get_by_role("button", name="Allow and add").click()


async def test_an_open_server_is_ready_after_its_address_was_entered(
    page: Page, start_program: ProgramStarter
) -> None:
    docs = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}").url
    await expect(page.get_by_label("Kind")).to_have_value("auto")
    await add(page, f"{docs}/mcp")
    await expect(page.get_by_role("heading", level=1)).to_have_text("docs-server")
    await expect(page.locator("[data-live^='instance:']")).to_have_attribute("data-state", "ready")
    await expect(page.get_by_text("mcp_docs-server__…").first).to_be_visible()
    await expect(page.get_by_role("link", name="resolve-library-id", exact=True)).to_be_visible()


async def test_a_second_server_of_the_same_name_gets_another_one(
    page: Page, start_program: ProgramStarter
) -> None:
    for name in ("docs-server", "docs-server 2", "docs-server 3"):
        docs = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}").url
        await page.goto("/ui/admin/mcp/new")
        await add(page, f"{docs}/mcp")
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)


async def test_a_guarded_server_needs_one_press_to_connect(page: Page, guarded_server: str) -> None:
    await add(page, f"{guarded_server}/mcp")
    await expect(page.get_by_text("One step left: connect")).to_be_visible()

    # The preview in the registry says the same.
    await page.goto("/ui/admin/mcp")
    await page.locator("#list .row-main a").click()
    await expect(page.get_by_text(re.compile(r"Needs sign-in \(OAuth found at http://127"))).to_be_visible()
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page).to_have_url(re.compile("/ui/mcp#i-"))
    await expect(page.locator("[data-live^='instance:']")).to_have_attribute("data-state", "ready")
    await expect(page.locator("[data-live^='instance:']")).to_have_count(1)


async def test_a_server_with_an_api_key_asks_for_the_name_of_the_header(
    page: Page, guarded_server: str
) -> None:
    without_metadata = {"named_in_header": None, "resource_places": []}
    async with aiohttp.ClientSession() as session:
        await session.patch(f"{guarded_server}/control", json=without_metadata)
    await add(page, f"{guarded_server}/mcp")
    await expect(page.get_by_text("The server needs an API key")).to_be_visible()
    await expect(page.get_by_label("Kind")).to_have_value("header")
    await page.get_by_label("Header or parameter name").fill("X-Key")
    await page.get_by_role("button", name="Add server").click()
    await expect(page.locator("#flash")).to_contain_text("Enter your key to use it.")
    await page.get_by_label("Value for the header X-Key").fill("k3y")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("#flash")).to_contain_text("was created.")


async def test_an_edited_server_is_asked_again_how_to_sign_in(
    page: Page, guarded_server: str, start_program: ProgramStarter
) -> None:
    await page.get_by_label("Kind").select_option("public")
    await add_without_check(page, f"{guarded_server}/mcp")
    await open_edit_form(page)
    await page.get_by_label("Kind").select_option("Automatic: ask the server")
    await expect(page.get_by_label("Label")).to_be_hidden()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("127.0.0.1 is a private address")).to_be_visible()
    await expect(page.get_by_label("Kind")).to_have_value("auto")
    await page.get_by_role("button", name="Allow and save").click()
    await expect(page.locator("#flash")).to_contain_text("was saved.")
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page.locator("[data-live^='instance:'][data-state='ready']")).to_have_count(1)

    # The admin is signed in by now, and stays so; the server is asked as a stranger would.
    await open_edit_form(page)
    await expect(page.get_by_label("Kind")).to_have_value("oauth")
    await page.get_by_label("Kind").select_option("auto")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#flash")).to_contain_text("was saved.")
    await page.goto("/ui/mcp")
    await expect(page.locator("[data-live^='instance:'][data-state='ready']")).to_have_count(1)

    # Another address has another answer.
    docs = start_program(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}").url
    await open_edit_form(page)
    await page.get_by_label("URL", exact=True).fill(f"{docs}/mcp")
    await page.get_by_label("Kind").select_option("auto")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#flash")).to_contain_text("was saved.")
    await open_edit_form(page)
    await expect(page.get_by_label("Kind")).to_have_value("public")

    # One that does not answer is saved only on request.
    await page.get_by_label("URL", exact=True).fill("http://127.0.0.1:9/mcp")
    await page.get_by_label("Kind").select_option("auto")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Couldn’t find out how to sign in")).to_be_visible()
    await expect(page.get_by_role("button", name="Save anyway")).to_be_visible()


async def test_a_sign_in_at_a_private_address_offers_to_allow_it(page: Page, guarded_server: str) -> None:
    await page.get_by_label("Kind").select_option("oauth")
    await add_without_check(page, f"{guarded_server}/mcp")
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Can’t find the sign-in page")
    await expect(page.locator("main")).not_to_contain_text("privateAddresses")
    await page.get_by_role("button", name="Allow private network addresses").click()
    await expect(page.locator("#flash")).to_contain_text("may have private network addresses.")
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page.locator("[data-live^='instance:'][data-state='ready']")).to_have_count(1)


async def add_without_check(page: Page, url: str) -> None:
    """Add a server whose kind of sign-in is chosen, so that nothing is asked."""
    await page.get_by_label("URL", exact=True).fill(url)
    await page.get_by_label("Name", exact=True).fill("Guarded")
    await page.get_by_role("button", name="Add server").click()
    await expect(page.locator("#flash")).to_contain_text("was added.")


async def open_edit_form(page: Page) -> None:
    """Go to the form of the only registry server."""
    await page.goto("/ui/admin/mcp")
    await page.locator("#list .row-main a").click()
    await page.get_by_role("link", name="Edit").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Edit")


async def test_the_redirect_address_is_beside_the_choice_to_register_by_hand(page: Page) -> None:
    await page.get_by_label("Kind").select_option("oauth")
    address = page.get_by_label("Redirect URI to register")
    await expect(address).to_be_hidden()
    await page.get_by_label("Registration").select_option("Registered by hand")
    await expect(address).to_be_visible()
    await page.locator(".copy-field").get_by_role("button", name="Copy").click()
    clipboard_text = await page.evaluate("navigator.clipboard.readText()")
    assert clipboard_text.endswith("/ui/auth/mcp/callback")
    assert clipboard_text == await address.input_value()

    # The same for a method that the script adds.
    await page.get_by_role("button", name="Add sign-in method").click()
    last_choice = page.locator("fieldset.choice").last
    await last_choice.get_by_label("Kind").select_option("oauth")
    await last_choice.get_by_label("Registration").select_option("Registered by hand")
    await expect(last_choice.get_by_label("Redirect URI to register")).to_have_value(clipboard_text)
