"""Icons that servers publish: fetched by us, checked by their content, and served from our origin."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.web.conftest import InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser

from toolyard.types.registry import InstanceDraft, ServerDraft


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
    }
    result = results.get(message["method"])
    more = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **more}), flush=True)
"""


def entry(*icons: Any) -> dict[str, Any]:
    """A stdio server that publishes these icons."""
    return {"command": sys.executable, "args": ["-I", "-S", "-c", SERVER, json.dumps(icons)]}


async def listed(local: InProcessApp) -> ScriptlessBrowser:
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
    me = await listed(local)
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
    await listed(local)
    assert (await local.client().get("/ui/servers/art/icon")).status == 404


async def test_an_icon_is_fetched_through_the_address_guard(
    open_site: Opening, serve_http: Callable[[web.Application], Awaitable[str]]
) -> None:
    asked: list[str] = []

    async def icon(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == "/moved.png":
            raise web.HTTPFound("/icon.png")
        if request.path == "/bomb.png":
            return web.Response(body=zlib.compress(PNG * 50_000), headers={"Content-Encoding": "deflate"})
        return web.Response(body=PNG, content_type="text/html")

    async def mcp(request: web.Request) -> web.Response:
        message = await request.json()
        if "id" not in message:
            return web.Response(status=202)
        urls = [{"src": f"http://{request.host}{path}"} for path in ("/moved.png", "/bomb.png", "/icon.png")]
        info = {"name": "icons", "version": "1", "icons": urls}
        version = (message.get("params") or {}).get("protocolVersion", "2025-11-25")
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info},
            "tools/list": {"tools": []},
        }
        result = results.get(message["method"])
        more = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **more})

    app = web.Application()
    app.router.add_post("/mcp", mcp)
    app.router.add_get("/{name}", icon)
    url = await serve_http(app)
    local = await open_site({"spy": entry({"src": f"{url}/icon.png"})})
    registry = local.services.registry
    server = await registry.add_server(ServerDraft("Art", f"{url}/mcp", private_addresses=True))
    user = await local.services.people.local_user()
    made = await registry.create_instance(user.id, InstanceDraft(server.id))
    me = await listed(local)

    # A server that may not name private addresses makes us ask nothing.
    assert (await local.client().get("/ui/servers/spy/icon")).status == 404
    assert asked == ["/mcp"] * asked.count("/mcp")
    (image,) = (await me.get("/ui/mcp")).root.all("img", class_="server-icon")
    assert image.attrs["src"] == f"/ui/mcp/{made.id}/icon"
    # Requests at the same time share those that leave, and later ones the cache.
    answers = await asyncio.gather(*(local.client().get(image.attrs["src"]) for _ in range(10)))
    for answer in [*answers, await local.client().get(image.attrs["src"])]:
        assert (answer.status, answer.headers["Content-Type"], answer.body) == (200, "image/png", PNG)
    fetched = [path for path in asked if path != "/mcp"]
    assert fetched == ["/moved.png", "/bomb.png", "/icon.png"]


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
    made = await local.services.registry.create_instance(ann.user.id, InstanceDraft(server.id))
    assert (await bob.browser.get(f"/ui/mcp/{made.id}/icon")).status == 404
    assert (await local.client().get(f"/ui/mcp/{made.id}/icon")).status == 303
