"""Icons that servers publish: fetched by us, checked by their content, and served from our origin."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.web.chat.chat_client import begin, run, wait_for_end
from tests.web.conftest import HttpClient, InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser, ScriptlessPage

from toolyard.types.registry import InstanceDraft, ServerDraft
from toolyard.types.server import HttpSpec, Server
from toolyard.web.servers.icons import ServerIcons


def png(width: int, height: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"
    return head + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"x" * 100


def jpeg(width: int, height: int) -> bytes:
    frame = b"\xff\xc0\0\x0b\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return b"\xff\xd8\xff\xe0\0\x06JFIF" + frame + b"x" * 100


def webp(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0" + b"\0" * 4 + size + b"x" * 100


def lossless_webp(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    return b"RIFF\0\0\0\0WEBPVP8L\x0a\0\0\0\x2f" + bits.to_bytes(4, "little") + b"x" * 100


def lossy_webp(width: int, height: int) -> bytes:
    size = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return b"RIFF\0\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\x01\x2a" + size + b"x" * 100


KINDS = (png, jpeg, webp, lossless_webp, lossy_webp)
PNG = png(64, 64)
SERVER = """
import json, sys
icons = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    info = {"name": "icons", "version": "1", "icons": icons}
    version = (message.get("params") or {}).get("protocolVersion", "2025-11-25")
    results = {
        "initialize": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
        "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }
    result = results.get(message["method"])
    more = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **more}), flush=True)
"""


def entry(*icons: Any) -> dict[str, Any]:
    """A stdio server that publishes these icons."""
    return {"command": sys.executable, "args": ["-I", "-S", "-c", SERVER, json.dumps(icons)]}


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def icons_of(page: ScriptlessPage) -> list[str]:
    """The paths of the icons of servers on a page."""
    return [each.attrs["src"] for each in page.root.all("img", class_="server-icon")]


async def read_streamed_card(client: HttpClient, chat: str, after: int) -> str:
    """The first change of the chat's page that has a tool card."""
    url = f"{client.url}/ui/chat/{chat}/stream?after={after}"
    async with client.session.get(url, headers=client.headers) as response:
        async for line in response.content:
            if b"tool-card" in line:
                return line.decode()
    raise AssertionError("the stream ended")


async def browse_with_listings(local: InProcessApp) -> ScriptlessBrowser:
    """Somebody who has listed the tools of all servers."""
    await local.client().get("/api/v1/tools?fresh=true")
    return ScriptlessBrowser(local.client())


@pytest.mark.parametrize(
    ("content", "media_type"),
    [(PNG, "image/png"), (jpeg(64, 64), "image/jpeg"), *((make(64, 64), "image/webp") for make in KINDS[2:])],
)
async def test_a_picture_in_a_data_url_is_served_from_our_origin(
    open_site: Opening, content: bytes, media_type: str
) -> None:
    # The type that the server claims does not count.
    src = "data:text/html;base64," + base64.b64encode(content).decode()
    local = await open_site({"art": entry({"src": src})})
    me = await browse_with_listings(local)
    (image,) = (await me.get("/ui/")).root.all("img", class_="server-icon")
    answer = await local.client().get(image.attrs["src"])
    assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, media_type, content)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "content",
    [
        *(b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"<html>", b"", PNG + b"x" * 65_536),
        # A small file that takes gigabytes in a browser.
        *(make(16_383, 16_383) for make in KINDS),
    ],
)
async def test_anything_else_is_not_served(open_site: Opening, content: bytes) -> None:
    src = "data:image/png;base64," + base64.b64encode(content).decode()
    local = await open_site(
        {"art": entry({"src": src}, {"src": 5}, "nothing", {"src": "javascript:alert(1)"})}
    )
    await browse_with_listings(local)
    answer = await local.client().get("/ui/servers/art/icon")
    assert answer.status == 404
    # Browsers show a picture of ours in its place.
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert b"<path d=" in answer.body


class ArtServer:
    """An MCP server with pictures; it keeps the paths that were requested."""

    def __init__(self, *icon_paths: str) -> None:
        self._icon_paths = icon_paths
        self.asked: list[str] = []
        self.app = web.Application()
        self.app.router.add_post("/mcp", self._answer)
        self.app.router.add_get(r"/{name:\w+\.png}", self._send_icon)

    async def _send_icon(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path == "/moved.png":
            raise web.HTTPFound("/icon.png")
        if request.path == "/bomb.png":
            return web.Response(body=zlib.compress(PNG * 50_000), headers={"Content-Encoding": "deflate"})
        return web.Response(body=PNG, content_type="text/html")

    async def _answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        urls = [{"src": f"http://{request.host}{path}"} for path in self._icon_paths]
        info = {"name": "icons", "version": "1", "icons": urls}
        version = (message.get("params") or {}).get("protocolVersion", "2025-11-25")
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
            "tools/list": {"tools": []},
        }
        result = results.get(message["method"])
        more = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **more})


async def test_an_icon_is_fetched_through_the_address_guard(
    open_site: Opening, serve_http: Callable[[web.Application], Awaitable[str]]
) -> None:
    art = ArtServer("/moved.png", "/bomb.png", "/icon.png")
    url = await serve_http(art.app)
    local = await open_site({"spy": entry({"src": f"{url}/icon.png"})})
    registry = local.services.registry
    server = await registry.add_server(ServerDraft("Art", f"{url}/mcp", private_addresses=True))
    user = await local.services.people.local_user()
    instance = await registry.create_instance(user.id, InstanceDraft(server.id))
    me = await browse_with_listings(local)

    # A server that may not name private addresses makes us ask nothing.
    assert (await local.client().get("/ui/servers/spy/icon")).status == 404
    assert art.asked == []
    (image,) = (await me.get("/ui/mcp")).root.all("img", class_="server-icon")
    assert image.attrs["src"] == f"/ui/mcp/{instance.id}/icon"
    # Requests at the same time share those that leave, and later ones the cache.
    answers = await asyncio.gather(*(local.client().get(image.attrs["src"]) for _ in range(10)))
    for answer in [*answers, await local.client().get(image.attrs["src"])]:
        assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, "image/png", PNG)
    assert art.asked == ["/moved.png", "/bomb.png", "/icon.png"]


async def test_a_fetched_icon_is_not_shown_for_a_server_that_may_no_longer_fetch_it(
    open_site: Opening, serve_http: Callable[[web.Application], Awaitable[str]]
) -> None:
    art = ArtServer("/icon.png")
    url = await serve_http(art.app)
    icons = (await open_site({})).part(ServerIcons)
    addresses = [f"{url}/icon.png"]
    server = Server("one", HttpSpec("https://art.example/mcp"), private_addresses=True)
    assert await icons.fetch(server, addresses) is not None
    assert await icons.fetch(replace(server, private_addresses=False), addresses) is None
    assert art.asked == ["/icon.png"]


async def test_registry_pages_show_icons(
    open_site: Opening, serve_http: Callable[[web.Application], Awaitable[str]]
) -> None:
    url = await serve_http(ArtServer("/icon.png").app)
    local = await open_site({"file": entry({"src": data_url(PNG)})}, people_mode="password")
    root, bob = await local.person("root", "admin"), await local.person("bob")
    registry = local.services.registry
    shut = await registry.add_server(ServerDraft("Shut", f"{url}/mcp?shut"))
    open_server = await registry.add_server(ServerDraft("Open", f"{url}/mcp", private_addresses=True))
    admin, user = ScriptlessBrowser(root.browser), ScriptlessBrowser(bob.browser)
    await root.browser.get("/api/v1/tools?fresh=true")
    assert icons_of(await admin.get("/ui/admin/mcp")) == ["/ui/servers/file/icon"]

    # The preview names the icon of a server that is open; others may see it then, too.
    path = f"/ui/registry/{open_server.id}/icon"
    for server in (shut, open_server):
        page = await admin.get(f"/ui/admin/mcp/{server.id}/contents")
        assert icons_of(page) == ([path] if server is open_server else [])
    assert icons_of(await admin.get("/ui/admin/mcp")) == [path, "/ui/servers/file/icon"]
    assert icons_of(await user.get("/ui/mcp/new")) == [path]
    for person in (root, bob):
        answer = await person.browser.get(path)
        assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, "image/png", PNG)
    assert (await bob.browser.get(f"/ui/registry/{shut.id}/icon")).status == 404
    assert (await local.client().get(path)).status == 303
    # What the person's own instance names comes first.
    instance = await registry.create_instance(bob.user.id, InstanceDraft(open_server.id))
    await bob.browser.get("/api/v1/tools?fresh=true")
    assert icons_of(await user.get("/ui/mcp/new")) == [f"/ui/mcp/{instance.id}/icon"]
    assert icons_of(await admin.get("/ui/admin/mcp"))[0] == path
    # A server with another address has named no icon yet.
    await registry.edit_server(open_server.id, replace(open_server.to_draft(), url=f"{url}/mcp?other"))
    assert icons_of(await admin.get("/ui/admin/mcp")) == ["/ui/servers/file/icon"]


async def test_a_call_in_a_chat_has_the_icon_of_its_server(open_site: Opening) -> None:
    dark = {"src": data_url(png(9, 9)), "theme": "dark"}
    local = await open_site({"art": entry(dark, {"src": data_url(PNG)}), "plain": entry()})
    me, client = await browse_with_listings(local), local.client()
    chat = await begin(client)
    for name, expected in (("art_t", ["/ui/servers/art/icon"]), ("plain_t", [])):
        turn = await run(client, chat, name)
        await wait_for_end(client, chat, turn - 1)
        streamed_card = await read_streamed_card(client, chat, turn - 1)
        assert all(path in streamed_card for path in expected)
        assert ("server-icon" in streamed_card) == bool(expected)
        card = (await me.get(f"/ui/chat/{chat}")).root.all("article", class_="tool-card")[-1]
        assert [each.attrs["src"] for each in card.all("img", class_="server-icon")] == expected
    # Pages show it on a light ground.
    assert (await client.get("/ui/servers/art/icon")).body == PNG


async def test_tools_to_choose_from_have_the_icons_of_their_servers(open_site: Opening) -> None:
    local = await open_site({"art": entry({"src": data_url(PNG)}), "plain": entry()})
    me, expected = await browse_with_listings(local), ["/ui/servers/art/icon"]
    chat = await begin(local.client())
    assert icons_of(await me.get("/ui/chat/console")) == expected
    assert icons_of(await me.get(f"/ui/chat/{chat}/console?tool=art_t")) == expected
    assert icons_of(await me.get(f"/ui/chat/{chat}/console?tool=plain_t")) == []
    assert icons_of(await me.get(f"/ui/chat/{chat}/tools")) == expected


@pytest.fixture
async def serve_http() -> Any:
    runners: list[web.AppRunner] = []

    async def start(app: web.Application) -> str:
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


async def test_one_person_does_not_get_the_icon_of_another(open_site: Opening, tmp_path: Path) -> None:
    local = await open_site({}, people_mode="password")
    ann, bob = await local.person("ann"), await local.person("bob")
    server = await local.services.registry.add_server(ServerDraft("Art", "https://art.test/mcp"))
    instance = await local.services.registry.create_instance(ann.user.id, InstanceDraft(server.id))
    assert (await bob.browser.get(f"/ui/mcp/{instance.id}/icon")).status == 404
    assert (await local.client().get(f"/ui/mcp/{instance.id}/icon")).status == 303
