"""Attachments in a real browser: by button, paste and drop; sent, shown, and received by the model."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect
from tests.conftest import ProgramStarter
from tests.web.chat.test_attachments import png
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
    config_text = f'model = "openai:fake-1"\nbase_url = "{model.url}/v1"\napi_key = "good"\n'
    settings = f'attachment_bytes = 100000\n[models.seeing]\n{config_text}label = "Sees"\nsees = true\n'
    (data / "toolyard.toml").write_text(f'{settings}[models.blind]\n{config_text}label = "Blind"\n', "utf-8")
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, model, {})
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
    async with looking_at(chromium, yard) as context:
        page = context.page
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
        await expect((await wait_for_turn_end(page)).locator(".md")).to_have_text("image: yes")
        first = turn(page, 0).locator(".attached")
        await expect(first.locator("a.chip")).to_contain_text("notes.md 800 bytes")
        assert [part["type"] for part in received(yard)] == ["text", "text", "text", "image_url"]
        url = received(yard)[3]["image_url"]["url"]  # type: ignore[index]
        assert url == f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        # The picture is shown, and in full size on a click.
        await first.get_by_role("button", name="Show image.png in full size").click()
        full = page.locator(".full-picture:popover-open img")
        await expect(full).to_have_js_property("naturalWidth", 8)
        await page.keyboard.press("Escape")
        await expect(full).to_be_hidden()
        # In the same chat, without leaving the page.
        await carry(page, "paste", "again.png", "image/png", picture)
        await say(page, "image?")
        await expect((await wait_for_turn_end(page)).locator(".md")).to_have_text("image: yes")
        await expect(page.locator("#attachments .chip")).to_have_count(0)
        assert await is_same_page(page)
        await first.locator("a.chip").click()
        await expect(page.locator("#dialog pre")).to_contain_text("# Notes")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Download").last.click()
        assert (await (await download.value).path()).read_bytes() == notes.read_bytes()


async def test_a_message_waits_for_its_uploads(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, released = context.page, asyncio.Event()

        async def hold(route: object) -> None:
            await released.wait()
            await route.continue_()  # type: ignore[attr-defined]

        await page.route("**/api/v1/attachments?*", hold)
        await carry(page, "paste", "slow.png", "image/png", png())
        await say(page, "image?")
        await expect(page.locator("#attachments [aria-busy=true]")).to_have_count(1)
        released.set()
        await page.wait_for_url("**/ui/chat/*")
        await expect((await wait_for_turn_end(page)).locator(".md")).to_have_text("image: yes")


async def test_an_edit_names_the_attachments_that_stay(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, editing = context.page, context.page.locator("#editing")
        await carry(page, "drop", "x.png", "image/png", png())
        await begin(page, "image?")
        await wait_for_turn_end(page)
        await turn(page).hover()
        await turn(page).get_by_role("link", name="Edit message").click()
        await expect(editing).to_contain_text("The earlier version is kept. Its attachment stays: x.png.")
        await carry(page, "drop", "<b>.txt", "text/plain", b"text")
        async with looking_at(chromium, yard, f"{page.url.split('#')[0]}?edit=1") as other:
            # Another window is first: the refusal names the attachments of the newer version.
            await carry(page, "drop", "y.png", "image/png", png())
            await expect(page.locator("#attachments .chip:not([aria-busy])")).to_have_count(2)
            await say(page, "say One.")
            await expect(page.locator(".alternatives")).to_have_text("2 of 2")
            await wait_for_turn_end(page)
            await say(other.page, "say Two.")
            await expect(other.page.locator("#alerts")).to_contain_text("changed since you opened it")
            await expect(other.page.locator("#editing")).to_contain_text(
                "Its attachments stay: x.png, <b>.txt, y.png."
            )
            other.said.clear()
        await page.get_by_label("Message", exact=True).fill("")
        await turn(page).hover()
        await turn(page).get_by_role("link", name="Edit message").click()
        await expect(editing).to_contain_text("Its attachments stay: x.png, <b>.txt, y.png.")


async def test_files_that_cannot_be_attached_are_refused_at_once(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, alerts = context.page, context.page.locator("#alerts")
        await carry(page, "drop", "big.txt", "text/plain", b"x" * 100_001)
        await expect(alerts).to_have_text("“big.txt” is too large: an attachment may have at most 0.1 MB.")
        await carry(page, "drop", "paper.pdf", "application/pdf", b"%PDF\0")
        await expect(alerts).to_contain_text(
            "“paper.pdf” is neither a picture nor a text file. Attach PNG, JPEG"
        )
        for number in range(21):
            await carry(page, "drop", f"{number}.txt", "text/plain", b"x")
        await expect(alerts).to_contain_text("at most 20 attachments")
        await expect(page.locator("#attachments .chip")).to_have_count(20)
        context.said[:] = [each for each in context.said if "422" not in each]


async def test_a_damaged_picture_is_told_before_it_is_sent(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, alerts = context.page, context.page.locator("#alerts")
        await carry(page, "paste", "whole.png", "image/png", png(8, 8))
        await expect(page.locator("#attachments img")).to_have_js_property("naturalWidth", 8)
        await expect(alerts).to_be_empty()
        await carry(page, "paste", "torn.png", "image/png", png(8, 8)[:40])
        await expect(alerts).to_contain_text("“torn.png” can’t be shown: the picture may be damaged.")
        await page.get_by_role("button", name="Remove torn.png").click()
        await expect(page.locator("#attachments .chip")).to_have_text(["whole.png"])


async def test_the_person_is_told_before_sending_that_a_model_cannot_see(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, notice = context.page, context.page.get_by_text("The selected model does not accept images.")
        await carry(page, "paste", "x.png", "image/png", png())
        await expect(page.locator("#attachments img")).to_have_count(1)
        await expect(notice).to_be_hidden()
        await page.get_by_label("Model").select_option("Blind")
        await expect(notice).to_be_visible()
        await say(page, "image?")
        await expect(page.locator("#alerts")).to_contain_text("Blind does not accept images")
        await expect(page.locator("#attachments .chip")).to_have_count(1)
        await page.get_by_label("Model").select_option("Sees")
        await begin(page, "image?")
        await expect((await wait_for_turn_end(page)).locator(".md")).to_have_text("image: yes")
        context.said[:] = [each for each in context.said if "409" not in each]


@asynccontextmanager
async def hold_posts(page: Page) -> AsyncIterator[asyncio.Event]:
    """Hold the forms that the chat sends until the block ends; the event is set when one was sent."""
    request_received, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "POST":
            request_received.set()
            await released.wait()
        await route.continue_()

    await page.route(page.url.partition("#")[0], hold)
    yield request_received
    released.set()


async def test_text_and_attachments_added_during_sending_are_kept(chromium: Browser, yard: ChatYard) -> None:
    async with looking_at(chromium, yard) as context:
        page, box = context.page, context.page.get_by_label("Message", exact=True)
        await begin(page, "say Hello.")
        await wait_for_turn_end(page)
        await carry(page, "drop", "sent.txt", "text/plain", b"x")
        await expect(page.locator("#attachments .chip:not([aria-busy])")).to_have_count(1)
        async with hold_posts(page) as held_posts_queue:
            await say(page, "say\nagain.")
            await asyncio.wait_for(held_posts_queue.wait(), 30)
            await box.press_sequentially("The next")
            await carry(page, "drop", "next.txt", "text/plain", b"x")
            await expect(page.locator("#attachments .chip:not([aria-busy])")).to_have_count(2)
        await expect(page.locator("#attachments .chip")).to_have_text(["next.txt"])
        await expect(box).to_have_value("The next")
        await expect(page.locator(".bubble").last).to_have_text("say\nagain.")


async def test_a_model_that_is_chosen_while_the_previous_choice_is_stored_is_stored(
    chromium: Browser, yard: ChatYard
) -> None:
    async with looking_at(chromium, yard) as context:
        page, model = context.page, context.page.get_by_label("Model")
        await begin(page, "say Hello.")
        await wait_for_turn_end(page)
        async with hold_posts(page) as held_posts_queue:
            await model.select_option("Blind")
            await asyncio.wait_for(held_posts_queue.wait(), 30)
            await model.select_option("Sees")
        await expect(page.locator("#settings-form[aria-busy]")).to_have_count(0)
        await expect(model.locator("option:checked")).to_have_text("Sees")
        await page.reload()
        await expect(model.locator("option:checked")).to_have_text("Sees")


@pytest.mark.parametrize("width", [1280, 390])
async def test_attachments_fit_and_are_readable_in_both_themes(
    chromium: Browser, yard: ChatYard, width: int
) -> None:
    size = {"width": width, "height": 844}
    async with looking_at(chromium, yard, viewport=size) as context:
        page = context.page
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
        await wait_for_turn_end(page)
        async for _ in schemes(page):
            assert await page.evaluate(CONTRAST) == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
