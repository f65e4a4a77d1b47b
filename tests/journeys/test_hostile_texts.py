"""Servers, models, agents and users attack every page by their texts, in a real browser: nothing runs, loads
or takes over the page."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Error, Page, Route, expect
from tests.conftest import ProgramStarter
from tests.servers.hostile_texts_server import ATTACK, SHORT

from toolyard.web.ui import router

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow, pytest.mark.timeout(300)]

SERVERS = Path(__file__).parent.parent / "servers"
SERVER = SERVERS / "hostile_texts_server.py"
PLAIN = "".join(character for character in ATTACK if character.isprintable())
AGENT = f"""\
---
name: Evil
description: {json.dumps(ATTACK)}
---
{ATTACK}
"""
WATCH = """
window.violations = [];
addEventListener("securitypolicyviolation", event => window.violations.push(event.violatedDirective));
"""
PAGES = (
    "/ui/",
    "/ui/chat",
    "/ui/chat?run&tool=evil_show",
    "/ui/approvals",
    "/ui/agents",
    "/ui/connect",
    "/ui/mcp",
    "/ui/tokens",
    "/ui/servers/evil",
    "/ui/admin/mcp",
    "/ui/admin/mcp/files/evil",
    "/ui/admin/mcp/files/evil/contents",
    "/ui/admin/mcp/files/evil/changes",
    "/ui/admin/mcp/files/evil/tool?name=show",
    "/ui/admin/mcp/files/evil/tool?name=ask",
    "/ui/admin/audit",
    "/ui/account",
    "/ui/admin/people",
    "/ui/mcp/new",
    "/ui/admin/mcp/new",
    "/ui/agents/evil",
    "/ui/agents/evil/tools",
    *(f"{path}?q={urllib.parse.quote(SHORT)}" for path in ("/ui/mcp", "/ui/admin/mcp", "/ui/chat")),
    f"/ui/admin/audit?action={urllib.parse.quote(SHORT)}",
    f"/ui/search?q={urllib.parse.quote(SHORT)}",
    f"/ui/catalog?q={urllib.parse.quote(SHORT)}",
    "/ui/search?q=body",
    "/ui/catalog",
    "/ui/proposals",
    f"/ui/proposals/new?url={urllib.parse.quote(SHORT)}",
    "/ui/admin/proposals",
    "/ui/admin/models",
    "/ui/admin/models/new",
    "/ui/admin/models/labelled/edit",
    "/ui/admin/models/labelled/delete",
    "/ui/usage",
    "/ui/admin/usage",
    "/ui/budget",
    "/ui/budget/tools?id=evil",
    "/ui/agents/_new",
    "/ui/agents/_import",
    "/ui/chat/insert?kind=prompt",
    "/ui/chat/insert?kind=resource",
    "/ui/chat/console",
    "/ui/docs",
)
ELSEWHERE = {
    *("/", "/ui", "/oauth/client.json", "/oauth/client/{digest}.json", "/ui/admin/people/{user_id}/delete"),
    "/ui/results/{handle}",  # the same view as that of a result in a chat
    *("/ui/sign-in", "/ui/sign-in/oidc", "/ui/oidc/callback", "/ui/invite/{token}"),
    *("/ui/auth/mcp/callback", "/ui/auth/mcp/callback/{digest}", "/ui/mcp/slug"),
    *("/ui/mcp/{instance_id}/icon", "/ui/servers/{server_id}/icon", "/ui/registry/{server_id}/icon"),
    *("/ui/chat/{chat_id}/stream", "/ui/chat/insert/complete", "/ui/docs/{name:path}", "/ui/dev/parts"),
}
"""Pages without texts of others, and addresses that are no pages."""


HOSTILE = ("/ui/chat/", "/ui/approvals", "/ui/servers/evil", "/ui/admin/mcp/files/evil")
"""Pages that show the server's texts."""


class HostileTextApi:
    """The API of the server under test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.server = self.instance = self.token = self.agent = self.attachment = ""
        """Ids of a registry server, an instance, a token, a stored agent and an attachment with hostile
        texts."""

    def pages(self) -> list[str]:
        """Return the addresses of pages about these."""
        return [
            *(
                f"/ui/admin/mcp/{self.server}{part}"
                for part in ("", "/contents", "/edit", "/delete", "/changes")
            ),
            *(f"/ui/mcp/{self.instance}{part}" for part in ("", "/edit", "/delete", "/tools", "/changes")),
            f"/ui/mcp/{self.instance}/tool?name=show",
            f"/ui/tokens/{self.token}/delete",
            f"/ui/mcp/new?server={self.server}",
            f"/ui/chat/attachments/{self.attachment}",
            *(f"/ui/agents/{self.agent}{part}" for part in ("", "/edit", "/delete", "/tools")),
        ]

    def chat_parts(self, chat: str) -> list[str]:
        """Return the pages of the last turn and of the last result of a chat."""
        events = self(f"/chats/{chat}/events?limit=1000")["items"]
        seq = next(each["seq"] for each in reversed(events) if each["kind"] == "result")
        views = ("", *(f"?view={each}" for each in ("table", "tree", "raw")))
        return [f"/turns/{events[-1]['turn']}/delete", *(f"/results/{seq}{view}" for view in views)]

    def __call__(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        content_type = "octet-stream" if path.startswith("/attachments") else "json"
        headers = {"Accept": "application/json", "Content-Type": f"application/{content_type}"}
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=60).read()
        except urllib.error.HTTPError as error:
            answer = error.read()
        return json.loads(answer or b"null")

    def run(self, chat: str, tool: str, wait_until: str) -> None:
        """Run a tool in a chat, and wait for an event of a kind."""
        self(f"/chats/{chat}/runs", {"name": tool, "arguments": {"text": ATTACK}})
        self.wait(chat, wait_until)

    def wait(self, chat: str, wait_until: str) -> None:
        """Wait for an event of a kind."""
        for _ in range(300):
            event = self(f"/chats/{chat}/events?limit=1000")["items"]
            if any(each["kind"] == wait_until for each in event):
                return
            time.sleep(0.1)
        raise AssertionError(event)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileTextApi]:
    data, programs = tmp_path_factory.mktemp("hostile"), ProgramStarter()
    try:
        yield _start_hostile_site(data, programs)
    finally:
        programs.stop()


def _start_hostile_site(data: Path, programs: ProgramStarter) -> HostileTextApi:
    # A process of its own for each chat, so that each question is shown in its chat.
    entry = {"command": sys.executable, "args": ["-I", str(SERVER)], "sessions": "per-client"}
    (data / "mcp.json").write_text(json.dumps({"mcpServers": {"evil": entry}}))
    model = programs(sys.executable, "-I", SERVERS / "openai_server.py", "{port}")
    settings = f"""
write_tools = "ask"
[models.fake]
model = "openai:fake-1"
base_url = "{model.url}/v1"
api_key = "good"
"""
    (data / "toolyard.toml").write_text(settings)
    (data / "AGENTS.md").write_text(AGENT)
    server_program = programs(
        sys.executable, "-m", "toolyard", "--data-dir", data, "serve", "--port", "{port}"
    )
    api = HostileTextApi(server_program.url)
    remote = programs(sys.executable, "-I", SERVER, "{port}")
    server = {"name": SHORT, "url": f"{remote.url}/mcp", "description": PLAIN, "private_addresses": True}
    added_server = api("/servers", server)
    assert "id" in added_server, added_server
    api.server = added_server["id"]
    api.instance = api("/instances", {"server_id": api.server, "name": SHORT, "slug": "remote"})["id"]
    agent = {"name": SHORT, "description": ATTACK, "prompt": ATTACK, "starters": [SHORT]}
    api.agent = api("/agents", agent)["stored_id"]
    label = {"name": "labelled", "provider": "ollama", "model": SHORT, "label": SHORT}
    assert api("/model-entries", label)["label"] == SHORT
    entry = {"mcpServers": {SHORT: {"url": "https://example.com/mcp", "headers": {SHORT: SHORT}}}}
    assert "id" in api("/proposals", {"entry": json.dumps(entry), "reason": ATTACK})
    api.token = api("/tokens", {"name": SHORT, "scope": {"rights": ["read"]}})["id"]
    return api


@pytest.fixture(scope="module")
def chats(api: HostileTextApi) -> list[str]:
    """A chat for each way in which the server's texts get into one."""
    created_ids: list[str] = []
    ways = {"show": "end", "fail": "end", "word": "end", "write": "ask"}
    for tool, until in {**ways, **dict.fromkeys(("ask", "page", "think"), "question")}.items():
        created_ids.append(api("/chats", {"title": ATTACK[:100]})["id"])
        api.run(created_ids[-1], f"evil_{tool}", until)
    created_ids.append(api("/chats", {"agent": "evil"})["id"])
    api(f"/chats/{created_ids[-1]}/messages", {"text": f"say {ATTACK}\nthink {ATTACK}\ncall {SHORT} {{}}"})
    api.wait(created_ids[-1], "end")
    name = urllib.parse.quote(SHORT)
    api.attachment = api(f"/attachments?name={name}", ATTACK)["id"]
    created_ids.append(api("/chats", {"title": SHORT})["id"])
    api(f"/chats/{created_ids[-1]}/messages", {"text": ATTACK, "attachments": [api.attachment]})
    api.wait(created_ids[-1], "end")
    turn = api(f"/chats/{created_ids[-1]}/turns")["items"][0]["turn"]
    api(f"/chats/{created_ids[-1]}/turns/{turn}/edit", {"text": SHORT})
    api.wait(created_ids[-1], "end")
    return created_ids


@pytest.mark.parametrize("width", [1280, 390])
async def test_no_page_runs_loads_or_gives_way_to_a_servers_texts(
    chromium: Browser, api: HostileTextApi, chats: list[str], width: int
) -> None:
    api("/tools/evil_write/call", {"arguments": {ATTACK: ATTACK}})
    context = await chromium.new_context(base_url=api.url, viewport={"width": width, "height": 844})
    context.set_default_timeout(60_000)
    await context.add_init_script(WATCH)
    elsewhere: list[str] = []
    page_texts: list[str] = []

    async def watch(route: Route) -> None:
        if route.request.url.startswith((api.url, "data:image/")):
            await route.continue_()
        else:
            elsewhere.append(route.request.url)
            await route.abort()

    await context.route("**/*", watch)
    page = await context.new_page()
    page.on("dialog", lambda dialog: page_texts.append(f"dialog: {dialog.message}"))
    page.on("pageerror", lambda error: page_texts.append(str(error)))
    page.on("popup", lambda popup: page_texts.append(f"popup: {popup.url}"))
    page.on(
        "console", lambda each: page_texts.append(each.text) if each.type in ("error", "warning") else None
    )
    try:
        parts = [
            "/tools",
            "/rename",
            "/delete",
            "/console",
            "/earlier?before=1000000",
            *api.chat_parts(chats[0]),
        ]
        one = [f"/ui/chat/{chats[0]}{part}" for part in parts]
        one.append(f"/ui/approvals/{api('/approvals')['items'][0]['id']}")
        paths = [*PAGES, *api.pages(), *one, *(f"/ui/chat/{chat}" for chat in chats)]
        for path in paths:
            answer = await page.goto(path)
            assert answer is not None
            assert answer.status == 200, path
            await _check_page(page, width, path)
            if path.startswith(HOSTILE) and not path.endswith(("/changes", "/rename", "/delete")):
                assert "onerror=" in await page.inner_text("main"), path
            assert (page_texts, elsewhere) == ([], []), path
            if path.startswith("/ui/chat/"):
                forms = "a[href*='/insert/form?']"
                paths += await page.locator(forms).evaluate_all("all => all.map(each => each.href)")
        visited_paths = [path.removeprefix(api.url).partition("?")[0] for path in paths]
        routes = [each for each in router.build() if "GET" in each.methods and each.path not in ELSEWHERE]
        missing = [each.path for each in routes if not any(map(each.path_regex.match, visited_paths))]
        assert not missing, " ".join(missing)
        # Texts that arrive while the page is open.
        chat = api("/chats", {})["id"]
        await page.goto(f"/ui/chat/{chat}")
        await asyncio.to_thread(api.run, chat, "evil_show", "end")
        await expect(page.locator("main .result").first).to_contain_text("onerror=")
        await _check_page(page, width, "the open chat")
        assert (page_texts, elsewhere) == ([], [])
    finally:
        await context.close()


async def _check_page(page: Page, width: int, path: str) -> None:
    await expect(page.locator("[data-load][aria-busy]")).to_have_count(0)
    await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    await page.evaluate("for (const each of document.images) each.loading = 'eager'")
    assert await page.evaluate("window.ran") is None, path
    assert await page.evaluate("window.violations") == [], path
    assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
    links = await page.evaluate("[...document.links].map(each => each.href)")
    assert [link for link in links if not link.startswith(("http:", "https:", "mailto:"))] == [], path
    frames = await page.evaluate("document.querySelectorAll('iframe, object, embed, base').length")
    assert frames == 0, path


async def test_media_opened_by_themselves_run_nothing(
    chromium: Browser, api: HostileTextApi, chats: list[str]
) -> None:
    events = api(f"/chats/{chats[0]}/events?limit=1000")["items"]
    (result,) = [each for each in events if each["kind"] == "result"]
    media = result["body"]["media"]
    assert [each["mime"] for each in media] == ["image/svg+xml", "image/png", "text/html"]
    context = await chromium.new_context(base_url=api.url)
    elsewhere: list[str] = []

    async def watch(route: Route) -> None:
        if not route.request.url.startswith(api.url):
            elsewhere.append(route.request.url)
        await route.continue_()

    await context.route("**/*", watch)
    page = await context.new_page()
    try:
        for number in range(len(media)):
            try:
                await page.goto(f"/api/v1/chats/{chats[0]}/results/{result['seq']}/media/{number}")
            except Error as error:
                # It is saved, not shown.
                if "Download is starting" not in str(error):
                    raise
                continue
            assert await page.evaluate("window.ran") is None, media[number]
        assert elsewhere == []
    finally:
        await context.close()
