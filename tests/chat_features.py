"""``make chat-features``: use every feature of the chat once in Chromium, with the real local model.

The tests of the same features use a scripted model, which is faster and says what it is told. Here a small
real model answers through the product, and once more at an OpenAI-compatible address, which writes the title.
It needs ``.envs/local`` and ``.envs/node``, and takes one to three minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from playwright.async_api import Browser, FilePayload, Page, async_playwright, expect
from tests.chromium import EXECUTABLE, OPTIONS
from tests.conftest import ROOT, ProgramStarter
from tests.journeys.test_real_servers import EVERYTHING
from tests.journeys.test_results import run
from tests.web.chat.test_alternatives_browser import edit, place
from tests.web.chat.test_attachments import png
from tests.web.chat.test_attachments_browser import carry
from tests.web.chat.test_browser import ChatYard, begin, looking_at, say, turn, wait_for_turn_end
from tests.web.chat.test_pending_browser import HIDE, RECORD_NOTIFICATIONS, badge, call_write_tool

from toolyard.agents.models import llama_server

_ANSWER_TIMEOUT_MILLISECONDS = 180_000
_WORDS = re.compile(r"\w+")

Feature = Callable[[Page, ChatYard], Awaitable[None]]


async def stop_after_first_words(page: Page, turns: int) -> None:
    """Wait until the model says something, and stop it."""
    await expect(page.locator(".turn")).to_have_count(turns)
    await expect(turn(page).locator(".md").last).to_have_text(_WORDS, timeout=_ANSWER_TIMEOUT_MILLISECONDS)
    await page.keyboard.press("Escape")
    await wait_for_turn_end(page)


async def insert_prompt(page: Page, _yard: ChatYard) -> None:
    """A prompt by "/" with completed arguments."""
    box, dialog = page.get_by_label("Message", exact=True), page.locator("#dialog")
    await box.press_sequentially("/complet")
    await expect(page.locator("#insert-box [role=option]")).to_have_count(1)
    await box.press("Enter")
    await dialog.get_by_label("department").press_sequentially("Engin")
    await expect(dialog.locator("#suggestions option[value=Engineering]")).to_be_attached()
    await dialog.get_by_label("department").fill("Engineering")
    await dialog.get_by_label("name").fill("Alice")
    await dialog.get_by_role("button", name="Insert").click()
    await expect(page.locator("#attachments .chip")).to_contain_text("Prompt of")
    await begin(page, "Write a welcome.")
    await stop_after_first_words(page, 1)
    await expect(turn(page).locator(".attached .chip")).to_contain_text("Prompt of")


async def insert_resource(page: Page, _yard: ChatYard) -> None:
    """A resource by "@"."""
    box = page.get_by_label("Message", exact=True)
    await box.press_sequentially("Read this: @archi")
    await page.locator("#insert-box [role=option]").first.click()
    await page.locator("#dialog").get_by_role("button", name="Insert").click()
    await expect(page.locator("#attachments .chip")).to_contain_text("Resource of")
    await begin(page, "What is it about?")
    await stop_after_first_words(page, 1)


async def attach_files(page: Page, _yard: ChatYard) -> None:
    """Attachments by button, paste and drop; a picture is refused, because this model does not see."""
    notes = FilePayload(name="notes.md", mimeType="text/markdown", buffer=b"# Notes\n")
    await page.get_by_label("Attach files").set_input_files(notes)
    await carry(page, "drop", "dropped.txt", "text/plain", b"dropped")
    await carry(page, "paste", "seen.png", "image/png", png())
    await expect(page.locator("#attachments .chip:not([aria-busy])")).to_have_count(3)
    await expect(page.get_by_text("The selected model does not accept images.")).to_be_visible()
    await page.get_by_role("button", name="Remove seen.png").click()
    await begin(page, "What did I attach?")
    await stop_after_first_words(page, 1)
    await expect(turn(page).locator(".attached .chip")).to_have_count(2)


async def use_alternatives(page: Page, _yard: ChatYard) -> None:
    """Edit, retry, arrows, and the deletion of a version."""
    await begin(page, "Name a colour.")
    await stop_after_first_words(page, 1)
    await edit(page, 0, "Name an animal.")
    await stop_after_first_words(page, 1)
    await turn(page).get_by_role("button", name=re.compile("Try again|Retry")).click()
    await expect(place(page)).to_contain_text("3 of 3")
    await stop_after_first_words(page, 1)
    await page.get_by_role("button", name="Previous alternative").click()
    await page.get_by_role("button", name="Previous alternative").click()
    await expect(page.locator(".bubble")).to_have_text("Name a colour.")
    await page.get_by_role("link", name="Delete this version").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(place(page)).to_contain_text("of 2")


async def look_at_results(page: Page, _yard: ChatYard) -> None:
    """Tables, trees, diffs, code and pictures."""
    card = await run(page, "r_rows")
    await card.locator(".result-table").get_by_role("link", name="size").click()
    await expect(card.locator("th[aria-sort=ascending]")).to_have_text("size")
    async with page.expect_download():
        await card.get_by_role("link", name="Download CSV").click()
    await expect((await run(page, "r_tree")).locator(".tree-key").first).to_be_visible()
    await expect((await run(page, "r_diff")).locator(".result .h-gi").first).to_be_visible()
    await (await run(page, "r_pictures")).get_by_role("link", name="Open picture 1").click()
    await expect(page.locator("#dialog img")).to_be_visible()


async def follow_pending(page: Page, yard: ChatYard) -> None:
    """Badges, the count in the title, and a notification of a hidden page."""
    await page.locator("[data-notify]").click()
    await page.evaluate("loadPending()")
    await page.evaluate(HIDE)
    await asyncio.to_thread(call_write_tool, yard)
    await page.evaluate("loadPending()")
    await expect(badge(page, "Approvals")).to_be_visible()
    await expect(page).to_have_title(re.compile(r"^\(1\) "))
    assert await page.evaluate("notices") == ["playground_note: This call needs your approval."]
    await page.goto("/ui/approvals")
    await page.get_by_role("button", name="Decline").click()
    await expect(badge(page, "Approvals")).to_have_count(0)


async def get_title_and_context(page: Page, _yard: ChatYard) -> None:
    """A title by the model, its cost, the context bar, and the export."""
    await page.get_by_label("Model").select_option("small")
    message = "Answer with one word: what colour is the sky?"
    await begin(page, message)
    await expect(turn(page).locator(".foot-line")).to_be_visible(timeout=_ANSWER_TIMEOUT_MILLISECONDS)
    await expect(turn(page).locator(".cost")).to_contain_text("Title: ", timeout=_ANSWER_TIMEOUT_MILLISECONDS)
    await expect(page.locator("#chat-title")).not_to_have_text(message)
    await page.locator("#context summary").click()
    await expect(page.locator("#context")).to_contain_text("Tool definitions and instructions")
    chat = page.url.split("/")[-1].split("#")[0]
    export = await page.request.get(f"/api/v1/chats/{chat}/export")
    assert message in await export.text()
    data = await page.request.get("/api/v1/me/export")
    assert chat.encode() in await data.body()


async def use_palette_and_panels(page: Page, _yard: ChatYard) -> None:
    """The palette, and both panels collapsed."""
    await page.keyboard.press("Control+k")
    await page.keyboard.type("usage")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/ui/usage")
    await page.goto("/ui/chat")
    await page.get_by_role("button", name="Collapse navigation").click()
    await page.get_by_role("button", name="Collapse chat list").click()
    await expect(page.get_by_role("complementary", name="Chats")).to_be_hidden()
    await say(page, "Say hello.")
    await page.wait_for_url("**/ui/chat/*")
    await stop_after_first_words(page, 1)


FEATURES: tuple[Feature, ...] = (
    insert_prompt,
    insert_resource,
    attach_files,
    use_alternatives,
    look_at_results,
    follow_pending,
    get_title_and_context,
    use_palette_and_panels,
)


@contextlib.contextmanager
def serve_weights(weights: Path) -> Iterator[str]:
    """Serve the model at an OpenAI-compatible address, with the key ``good``; yield the address."""
    request = json.dumps({"path": str(weights), "key": "good"})
    with subprocess.Popen(
        [sys.executable, llama_server.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        yield process.stdout.readline().strip()
        process.stdin.close()


@contextlib.contextmanager
def serve_chats(data: Path, weights: Path, model_url: str) -> Iterator[ChatYard]:
    """Run ``toolyard serve`` with servers for all features; the default model is the local one."""
    python = {"command": sys.executable}
    servers = {
        "every": {"label": "Everything", "command": str(EVERYTHING), "args": ["stdio"]},
        "playground": {**python, "args": ["-I", "-m", "toolyard.cli.playground_server"]},
        "r": {**python, "args": ["-I", "-S", str(ROOT / "tests/servers/result_server.py")]},
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}), "utf-8")
    settings = f'write_tools = "ask"\nmodel = "local"\nlocal_model = "{weights}"\nlist_deadline = 30.0\n'
    entry = f'[models.small]\nmodel = "openai:local"\nbase_url = "{model_url}/v1"\napi_key = "good"\n'
    (data / "toolyard.toml").write_text(settings + entry, "utf-8")
    programs = ProgramStarter()
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield ChatYard(server_program.url, server_program, {})  # no scripted model
    programs.stop()


async def use_features(yard: ChatYard, chromium: Browser) -> None:
    for feature in FEATURES:
        start = time.monotonic()
        async with looking_at(chromium, yard) as context:
            await context.page.context.add_init_script(RECORD_NOTIFICATIONS)
            await context.page.reload()
            await feature(context.page, yard)
        print(f"{time.monotonic() - start:6.1f} s  {feature.__doc__}", flush=True)


async def main() -> None:
    [weights] = (ROOT / ".envs/local").resolve().rglob("*.gguf")
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_weights(weights) as model_url,
        serve_chats(Path(folder), weights, model_url) as yard,
    ):
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(executable_path=EXECUTABLE, args=OPTIONS)
            await use_features(yard, chromium)
            await chromium.close()


if __name__ == "__main__":
    asyncio.run(main())
