"""Attachments in a real browser: by button, paste and drop; sent, shown, and received by the model."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.conftest import ProgramStarter
from tests.web.chat.test_attachments import png
from tests.web.chat.test_browser import MODEL, ChatYard, begin, ended, looking_at, say, still, turn
from tests.web.pages.test_browser import CONTRAST, schemes

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(400)]

TRANSFER = """([kind, name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0)), carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent("paste", { ...options, clipboardData: carried })
    : new DragEvent(kind, { ...options, dataTransfer: carried });
  document.querySelector("#text").dispatchEvent(event);
}"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatYard]:
    data, programs = tmp_path_factory.mktemp("attachments"), ProgramStarter()
    model = programs(sys.executable, MODEL, "{port}")
    shared = f'model = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n'
    settings = f'attachment_bytes = 100000\n[models.seeing]\n{shared}label = "Sees"\nsees = true\n'
    (data / "toolyard.toml").write_text(f'{settings}[models.blind]\n{shared}label = "Blind"\n', "utf-8")
    served = programs(sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}")
    yield ChatYard(served.url, model, {})
    programs.stop()


def received(yard: ChatYard) -> list[dict[str, object]]:
    """The parts of the first message of the last request that the model got."""
    body = urllib.request.urlopen(f"{yard.model.url}/journal", timeout=30).read()
    return json.loads(body)[-1]["messages"][0]["content"]


async def carry(page: Page, kind: str, name: str, mime: str, data: bytes) -> None:
    await page.evaluate(TRANSFER, [kind, name, mime, base64.b64encode(data).decode()])


async def test_files_are_attached_by_button_paste_and_drop(
    chromium: Browser, yard: ChatYard, tmp_path: Path
) -> None:
    notes, picture = tmp_path / "notes.md", png(8, 8)
    notes.write_text("# Notes\n" * 100, "utf-8")
    async with looking_at(chromium, yard) as looking:
        page = looking.page
        await page.get_by_label("Attach files").set_input_files(notes)
        await carry(page, "paste", "image.png", "image/png", picture)
        await carry(page, "dragover", "dropped.png", "image/png", picture)
        await expect(page.locator("#composer")).to_have_class("composer dropping")
        await carry(page, "drop", "dropped.png", "image/png", picture)
        await expect(page.locator("#composer")).to_have_class("composer")
        items = page.locator("#attachments .chip")
        await expect(items).to_have_text(["notes.md", "image.png", "dropped.png"])
        await expect(items.nth(2).locator("img")).to_have_js_property("complete", True)
        await page.get_by_role("button", name="Remove dropped.png").click()
        await expect(items).to_have_count(2)
        await begin(page, "image?")
        await expect((await ended(page)).locator(".md")).to_have_text("image: yes")
        first = turn(page, 0).locator(".attached")
        await expect(first.locator("a.chip")).to_contain_text("notes.md 800 bytes")
        assert [part["type"] for part in received(yard)] == ["text", "text", "text", "image_url"]
        sent = received(yard)[3]["image_url"]["url"]  # type: ignore[index]
        assert sent == f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        # The picture is shown, and in full size on a click.
        await first.get_by_role("button", name="Show image.png in full size").click()
        full = page.locator(".full-picture:popover-open img")
        await expect(full).to_have_js_property("naturalWidth", 8)
        await page.keyboard.press("Escape")
        await expect(full).to_be_hidden()
        # In the same chat, without leaving the page.
        await carry(page, "paste", "again.png", "image/png", picture)
        await say(page, "image?")
        await expect((await ended(page)).locator(".md")).to_have_text("image: yes")
        await expect(page.locator("#attachments .chip")).to_have_count(0)
        assert await still(page)
        await first.locator("a.chip").click()
        await expect(page.locator("#dialog pre")).to_contain_text("# Notes")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Download").last.click()
        assert (await (await download.value).path()).read_bytes() == notes.read_bytes()


async def test_a_message_waits_for_its_uploads(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as looking:
        page, released = looking.page, asyncio.Event()

        async def hold(route: object) -> None:
            await released.wait()
            await route.continue_()  # type: ignore[attr-defined]

        await page.route("**/api/v1/attachments?*", hold)
        await carry(page, "paste", "slow.png", "image/png", png())
        await say(page, "image?")
        await expect(page.locator("#attachments [aria-busy=true]")).to_have_count(1)
        released.set()
        await page.wait_for_url("**/ui/chat/*")
        await expect((await ended(page)).locator(".md")).to_have_text("image: yes")


async def test_files_that_cannot_be_attached_are_refused_at_once(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as looking:
        page, told = looking.page, looking.page.locator("#told")
        await carry(page, "drop", "big.txt", "text/plain", b"x" * 100_001)
        await expect(told).to_have_text("“big.txt” is too large: an attachment may have at most 0.1 MB.")
        await carry(page, "drop", "paper.pdf", "application/pdf", b"%PDF\0")
        await expect(told).to_contain_text(
            "“paper.pdf” is neither a picture nor a text file. Attach PNG, JPEG"
        )
        for number in range(21):
            await carry(page, "drop", f"{number}.txt", "text/plain", b"x")
        await expect(told).to_contain_text("at most 20 attachments")
        await expect(page.locator("#attachments .chip")).to_have_count(20)
        looking.said[:] = [each for each in looking.said if "422" not in each]


async def test_the_person_is_told_before_sending_that_a_model_cannot_see(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as looking:
        page, told = looking.page, looking.page.get_by_text("The selected model does not accept images.")
        await carry(page, "paste", "x.png", "image/png", png())
        await expect(page.locator("#attachments img")).to_have_count(1)
        await expect(told).to_be_hidden()
        await page.get_by_label("Model").select_option("Blind")
        await expect(told).to_be_visible()
        await say(page, "image?")
        await expect(page.locator("#told")).to_contain_text("Blind does not accept images")
        await expect(page.locator("#attachments .chip")).to_have_count(1)
        await page.get_by_label("Model").select_option("Sees")
        await begin(page, "image?")
        await expect((await ended(page)).locator(".md")).to_have_text("image: yes")
        looking.said[:] = [each for each in looking.said if "409" not in each]


@pytest.mark.parametrize("width", [1280, 390])
async def test_attachments_fit_and_are_readable_in_both_themes(
    chromium: Browser, yard: ChatYard, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with looking_at(chromium, yard, viewport=size) as looking:
        page = looking.page
        for name in ("a-long-name-" * 9 + ".txt", "b.txt"):
            await carry(page, "drop", name, "text/plain", b"text")
        await carry(page, "paste", "x.png", "image/png", png())
        await expect(page.locator("#attachments .chip:not([aria-busy])")).to_have_count(3)
        await page.get_by_label("Model").select_option("Blind")
        await page.get_by_label("Message", exact=True).fill("image?")
        async for _ in schemes(page):
            assert await page.evaluate(CONTRAST) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.get_by_label("Model").select_option("Sees")
        await begin(page, "image?")
        await ended(page)
        async for _ in schemes(page):
            assert await page.evaluate(CONTRAST) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
