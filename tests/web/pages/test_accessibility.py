"""Every page in a real browser with axe-core: no findings in both themes, no horizontal scrolling, no motion.

The list of pages is made from the routes. A new route either is a page, or is named in ``NOT_PAGES``.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from tests.conftest import ROOT, ProgramStarter
from tests.demo_data import fill, write_files
from tests.web.pages.test_browser import BrowserSite, wait_for_late_parts, window

from toolyard.web.ui import router

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(580)]

AXE = ROOT / ".envs/node/node_modules/axe-core/axe.min.js"
WIDTHS = (390, 768, 1920)
NOT_PAGES = {
    "/": "redirect",
    "/ui": "redirect",
    "/ui/sign-in/oidc": "redirect",
    "/ui/oidc/callback": "redirect",
    "/ui/auth/mcp/callback": "redirect",
    "/ui/auth/mcp/callback/{digest}": "redirect",
    "/ui/servers/{server_id}": "redirect without a sign-in",
    "/oauth/client.json": "document",
    "/oauth/client/{digest}.json": "document",
    "/ui/chat/{chat_id}/stream": "event stream",
    "/ui/mcp/{instance_id}/icon": "picture",
    "/ui/servers/{server_id}/icon": "picture",
    "/ui/mcp/slug": "text for a field",
    "/ui/search": "list for the palette",
    "/ui/agents/{ref}/export": "file",
}
"""Routes that answer with something else than a page."""
SIGNED_OUT = ("/ui/sign-in", "/ui/invite/{token}")

FINDINGS = """async ([rules]) => {
  const options = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...options });
  // The order of headings in an answer is the model's.
  const isAnswer = ({ target }) => document.querySelector(target[0])?.closest(".md");
  const isOurs = (id, node) => id !== "heading-order" || !isAnswer(node);
  const ours = violations.map(({ id, nodes }) => [id, nodes.filter((node) => isOurs(id, node))]);
  const text = (nodes) => nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ");
  return ours.filter(([, nodes]) => nodes.length).map(([id, nodes]) => `${id}: ${text(nodes)}`);
}"""
MOVING = """() => [...document.querySelectorAll("*")].filter((one) => {
  const style = getComputedStyle(one);
  const seconds = (text) => Math.max(...text.split(",").map((each) => parseFloat(each)));
  const moves = style.animationName !== "none" && seconds(style.animationDuration) < 4;
  return moves || seconds(style.transitionDuration) > 0;
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserSite]:
    data, programs = tmp_path_factory.mktemp("accessible"), ProgramStarter()
    docs = programs(sys.executable, ROOT / "tests/servers/docs_server.py", "{port}")
    write_files(data)
    ids = asyncio.run(fill(data, f"{docs.url}/mcp"))
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    yield BrowserSite(server_program.url, ids, docs)
    programs.stop()


def get_json(yard: BrowserSite, path: str) -> Any:
    return json.loads(urllib.request.urlopen(f"{yard.url}/api/v1{path}", timeout=30).read())


def upload(yard: BrowserSite) -> Any:
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{yard.url}/api/v1/attachments?name=a.txt", b"words", headers)
    return json.loads(urllib.request.urlopen(request, timeout=30).read())


def list_pages(yard: BrowserSite) -> list[str]:
    """The path of every page, with values that exist."""
    model = {"name": "stored", "provider": "openai", "model": "gpt-5-mini", "key_variable": "OPENAI_API_KEY"}
    yard.post("/api/v1/model-entries", model)
    attachment = upload(yard)
    events = get_json(yard, f"/chats/{yard.ids['chat-turn']}/events")["items"]
    values = {
        "chat_id": yard.ids["chat-turn"],
        "turn": str(events[0]["turn"]),
        "seq": str(next(each["seq"] for each in events if each["kind"] == "result")),
        "approval_id": get_json(yard, "/approvals")["items"][0]["id"],
        "token_id": get_json(yard, "/tokens")["items"][0]["id"],
        "user_id": get_json(yard, "/users")["items"][0]["id"],
        "instance_id": yard.ids["docs"],
        "ref": "librarian",
        "name": "stored",
        "id": attachment["id"],
        "name:path": "guides/agents",
    }
    paths: list[str] = []
    for path in sorted({route.path for route in router.build() if "GET" in route.methods}):
        if path in NOT_PAGES or path in SIGNED_OUT or "{handle}" in path:
            continue
        filled_path = path.replace("{server_id}", "demo" if "/files/" in path else yard.ids["Linear"])
        for name, value in values.items():
            filled_path = filled_path.replace(f"{{{name}}}", value)
        assert "{" not in filled_path, f"{path}: add a value to this test, or the route to NOT_PAGES"
        if path.endswith("/tool"):
            filled_path += "?name=" + ("count" if "/files/" in path else "query-docs")
        paths.append(filled_path + ("?before=9999" if path.endswith("/earlier") else ""))
    return [
        *paths,
        f"/ui/chat/{yard.ids['chat-waits']}",
        "/ui/chat?run=",
        f"/ui/chat/{yard.ids['chat']}?run=&tool=demo_count",
        "/ui/nothing-here",
    ]


async def find_problems(page: Page) -> list[str]:
    """Return findings of axe-core in both themes, and widths at which the page scrolls to the side."""
    violations: list[str] = []
    # Evaluated, not added as an element: the content security policy would refuse it.
    await page.evaluate(AXE.read_text("utf-8"))
    # Only colours depend on the theme.
    for scheme, rules in (("light", None), ("dark", ["color-contrast"])):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        violations += [f"{scheme}: {each}" for each in await page.evaluate(FINDINGS, [rules])]
    violations += [f"moves: {each}" for each in await page.evaluate(MOVING)]
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        wide = await page.evaluate("document.documentElement.scrollWidth")
        violations += [f"{wide} px at a width of {width}"] if wide > width else []
    await page.set_viewport_size({"width": 1280, "height": 900})
    return violations


async def test_no_page_has_findings_or_scrolls_to_the_side(chromium: Browser, yard: BrowserSite) -> None:
    problems: dict[str, list[str]] = {}
    async with window(chromium, yard, viewport={"width": 1280, "height": 900}) as open_window:
        for path in list_pages(yard):
            await open_window.page.goto(path)
            await wait_for_late_parts(open_window.page)
            if found_problems := await find_problems(open_window.page):
                problems[path] = found_problems
        open_window.said.clear()
    assert problems == {}, json.dumps(problems, indent=1)


async def test_results_have_no_findings_in_any_view(chromium: Browser, yard: BrowserSite) -> None:
    async with window(chromium, yard) as open_window:
        page = open_window.page
        await page.goto("/ui/admin/mcp/files/demo/tool?name=weekday")
        await page.locator("input[name=arg-0]").fill("2026-07-28")
        await page.get_by_role("button", name="Call").click()
        view = page.locator("#result .result-view")
        await expect(view).to_be_visible()
        assert await find_problems(page) == []
        handle = await view.get_attribute("id")
        for name in ("table", "tree", "text"):
            await page.goto(f"/ui/results/{handle}?view={name}")
            assert await find_problems(page) == []


async def test_pages_before_the_sign_in_have_no_findings(
    chromium: Browser, yard: BrowserSite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, programs = tmp_path_factory.mktemp("signed-out"), ProgramStarter()
    (data / "toolyard.toml").write_text('people_mode = "password"\n', "utf-8")
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    command = (sys.executable, "-m", "toolyard", "--data-dir", str(data), "users", "add", "ada")
    stdout = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    token = re.search(r"/ui/invite/([^\s/]+)", stdout)
    assert token is not None
    try:
        async with window(chromium, BrowserSite(server_program.url, {}, server_program)) as open_window:
            for path in SIGNED_OUT:
                await open_window.page.goto(path.replace("{token}", token[1]))
                assert await find_problems(open_window.page) == [], path
    finally:
        programs.stop()
