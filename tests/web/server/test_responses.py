"""Responses over HTTP: compression, HEAD, and pages for addresses that do not exist."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Mapping
from itertools import islice, permutations

import aiohttp
import pytest
from starlette.routing import Mount
from tests.web.conftest import InProcessApp, Opening
from tests.web.scriptless_browser import ScriptlessBrowser, read

from toolyard.types.registry import ServerDraft
from toolyard.web.static_files import VersionedStaticFiles
from toolyard.web.ui.components.responses import STATIC_FOLDER, static_url

GZIP = {"Accept-Encoding": "gzip"}
HTML = {"Accept": "text/html,application/xhtml+xml"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}


async def fetch(
    local: InProcessApp, path: str, headers: Mapping[str, str], method: str = "GET", body: object = None
) -> tuple[int, Mapping[str, str], bytes]:
    """A response as it is sent, not decompressed."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(
            method, local.url + path, headers=headers, json=body, skip_auto_headers=["Accept-Encoding"]
        ) as response,
    ):
        return response.status, response.headers, await response.read()


@pytest.mark.parametrize("path", ["/ui/", "/api/v1/openapi.json", "/static/app.js", "/ui/nothing"])
async def test_pages_api_and_static_files_are_compressed(local_site: InProcessApp, path: str) -> None:
    _, plain_headers, plain = await fetch(local_site, path, {})
    assert "Content-Encoding" not in plain_headers
    status, headers, body = await fetch(local_site, path, GZIP)
    assert (status < 500, headers["Content-Encoding"], headers["Vary"]) == (True, "gzip", "Accept-Encoding")
    assert len(body) < len(plain) / 2
    if path.startswith("/ui"):
        assert gzip.decompress(body)[:15] == b"<!doctype html>"
    else:
        assert gzip.decompress(body) == plain
    _, headers, _ = await fetch(local_site, path, {"Accept-Encoding": "gzip;q=0, br"})
    assert "Content-Encoding" not in headers


async def test_a_compressed_static_file_is_not_sent_again(local_site: InProcessApp) -> None:
    _, headers, _ = await fetch(local_site, "/static/app.css", GZIP)
    status, _, body = await fetch(local_site, "/static/app.css", {**GZIP, "If-None-Match": headers["ETag"]})
    assert (status, body) == (304, b"")


async def test_a_static_file_of_this_version_is_compressed_once_and_cached_for_a_year(
    local_site: InProcessApp,
) -> None:
    path, plain = static_url("app.css"), (STATIC_FOLDER / "app.css").read_bytes()
    bodies = set[bytes]()
    for _ in range(3):
        status, headers, body = await fetch(local_site, path, GZIP)
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, "text/css")
        assert headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert headers["Vary"] == "Accept-Encoding"
        assert gzip.decompress(body) == plain
        bodies.add(body)
    # The first request reads the file; the others get the copy in memory, which is smaller.
    assert len(bodies) == 2
    _, headers, body = await fetch(local_site, path, {})
    assert ("Content-Encoding" in headers, body) == (False, plain)
    status, _, body = await fetch(local_site, path, {**GZIP, "Range": "bytes=0-9"})
    assert (status, len(body)) == (206, 10)
    status, headers, _ = await fetch(local_site, "/static/app.css?v=other", GZIP)
    assert (status, headers["Cache-Control"]) == (200, "no-cache")
    assert (await fetch(local_site, "/static/none.css?v=1", GZIP))[0] == 404


async def test_files_joined_in_any_order_do_not_fill_the_memory(local_site: InProcessApp) -> None:
    names = sorted(each.name for each in STATIC_FOLDER.iterdir() if each.suffix == ".js")
    files = next(each.app for each in local_site.app.routes if isinstance(each, Mount))
    assert isinstance(files, VersionedStaticFiles)
    for parts in islice(permutations(names, 3), 150):
        status, headers, _ = await fetch(local_site, static_url(*parts), GZIP)
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert files.cached_count == 100


async def test_files_that_pages_load_together_are_sent_as_one(local_site: InProcessApp) -> None:
    path = static_url("requests.js", "app.js")
    plain = b"\n".join((STATIC_FOLDER / name).read_bytes() for name in ("requests.js", "app.js"))
    for _ in range(2):
        status, headers, body = await fetch(local_site, path, GZIP)
        assert (status, gzip.decompress(body)) == (200, plain)
        assert headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert "javascript" in headers["Content-Type"]
    status, headers, body = await fetch(local_site, "/static/requests-app.js?v=old", {})
    assert (status, headers["Cache-Control"], body) == (200, "no-cache", plain)
    for wrong in ("requests-none.js", "..-app.js", "-.js", "requests-app", "%2e%2e%2f-app.js"):
        assert (await fetch(local_site, f"/static/{wrong}", {}))[0] == 404
    # Otherwise a short address would make everybody wait for a response of hundreds of megabytes.
    assert (await fetch(local_site, f"/static/{'app-' * 1_000}app.js", {}))[0] == 404


async def test_a_long_answer_is_compressed_too(local_site: InProcessApp) -> None:
    registry = local_site.services.registry
    for number in range(200):
        draft = ServerDraft(f"Server {number}", f"https://s{number}.test/mcp", description="words " * 300)
        await registry.add_server(draft)
    _, headers, body = await fetch(local_site, "/api/v1/servers", GZIP)
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == (await fetch(local_site, "/api/v1/servers", {}))[2]
    assert int(headers["Content-Length"]) == len(body) < 100_000


async def test_event_streams_and_the_gateway_are_not_compressed(
    local_site: InProcessApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> object:
        raise AssertionError("a compressor takes memory for as long as the stream is open")

    monkeypatch.setattr(zlib, "compressobj", fail)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{local_site.url}/api/v1/events", headers=GZIP) as response,
    ):
        assert response.content_type == "text/event-stream"
        assert "Content-Encoding" not in response.headers
    accept = {**GZIP, "Accept": "application/json, text/event-stream"}
    status, headers, _ = await fetch(local_site, "/mcp", accept, "POST", INITIALIZE)
    assert status == 200
    assert "Content-Encoding" not in headers


async def test_each_page_masks_the_csrf_value_differently(local_site: InProcessApp) -> None:
    me = ScriptlessBrowser(local_site.client())
    pages = [await me.get("/ui/") for _ in range(2)]
    values = {page.root.one("input", name="csrf").attrs["value"] for page in pages}
    assert len(values) == 2


@pytest.mark.parametrize("path", ["/ui/", "/ui/mcp", "/api/v1/me", "/api/v1/openapi.json", "/static/app.js"])
async def test_head_answers_like_get_without_a_body(local_site: InProcessApp, path: str) -> None:
    status, headers, _ = await fetch(local_site, path, {})
    head_status, head_headers, body = await fetch(local_site, path, {}, "HEAD")
    assert (head_status, body) == (status, b"") == (200, b"")
    for name in ("Content-Type", "Content-Length", "Cache-Control", "Content-Security-Policy"):
        if "/ui/" not in path or name != "Content-Length":
            assert head_headers.get(name) == headers.get(name)


async def test_head_of_an_event_stream_ends(local_site: InProcessApp) -> None:
    async with asyncio.timeout(20):
        status, headers, body = await fetch(local_site, "/api/v1/events", {}, "HEAD")
    assert (status, headers["Content-Type"].partition(";")[0], body) == (200, "text/event-stream", b"")


async def test_head_needs_the_same_rights(password_site: InProcessApp) -> None:
    assert (await fetch(password_site, "/api/v1/me", {}, "HEAD"))[0] == 401
    assert (await fetch(password_site, "/api/v1/chats", {}, "HEAD"))[0] == 401


@pytest.mark.parametrize("path", ["/ui/nothing", "/nothing", "/ui/mcp/nothing"])
async def test_a_missing_page_keeps_the_navigation(password_site: InProcessApp, path: str) -> None:
    ann = (await password_site.person("rosalind")).browser
    answer = await ann.get(path, headers=HTML)
    assert (answer.status, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    page = read(answer.text)
    assert page.one("h1").text == "Not found"
    assert page.one("nav", aria_label="Main").all("a", href="/ui/mcp")
    assert not page.all("a", href="/ui/admin/mcp")
    stranger = await password_site.client().get(path, headers=HTML)
    assert "rosalind" not in stranger.text
    assert "<nav" not in stranger.text


async def test_programs_are_told_of_a_missing_path_in_json(
    password_site: InProcessApp, open_site: Opening
) -> None:
    for path, headers in (("/nothing", {}), ("/api/v1/nothing", HTML)):
        answer = await password_site.client().get(path, headers=headers)
        assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
