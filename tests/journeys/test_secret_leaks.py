"""A server with secrets of every kind is used, and then looked at from everywhere: none of them shows."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
import psutil
import pytest
from tests.archives import join_files

from toolyard.web import ui

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

ROOT = Path(__file__).parent.parent.parent
HOSTILE = str(ROOT / "tests/hostile/stdio_server.py")
SECRETS = {
    "header": "canary-header-7f3a9c51e2",
    "variable": "canary-variable-0b64d8aa17",
    "model": "canary-model-key-55c2e90f31",
    "instance": "canary-instance-c81d26b7e4",
    "client": "canary-client-secret-9a0e4f",
    "registry client": "canary-registry-client-2f61bb",
    "stored model": "canary-stored-model-key-e7c04d",
}
FORGED_LINE = "2026-01-01 00:00:00,000 INFO    toolyard.web: somebody signed in as admin"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class LoggedServe:
    """``toolyard serve`` with everything that it printed."""

    url: str
    data: Path
    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    log: list[str] = field(default_factory=list)

    async def get(self, path: str) -> str:
        async with self.session.get(self.url + path) as answer:
            body = await answer.read()
            if answer.content_type == "application/zip":
                body = join_files(body)
            return f"{answer.headers}\n{body.decode()}"

    async def post(self, path: str, body: Any) -> dict[str, Any]:
        async with self.session.post(self.url + path, json=body) as answer:
            return await answer.json()

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.log.append(line.decode())


def configure(data: Path, hostile: str) -> None:
    data.mkdir()
    secret = {"Authorization": f"Bearer {SECRETS['header']}"}
    stdio = {"command": sys.executable, "env": {"API_KEY": SECRETS["variable"]}}
    oauth = {"clientId": "us", "clientSecret": SECRETS["client"]}
    servers = {
        "http": {"url": f"{hostile}/good/secrets", "headers": secret},
        "refusing": {"url": f"{hostile}/status-500/secrets", "headers": secret},
        "oauth": {"url": f"{hostile}/status-401/secrets?when=always", "oauth": oauth},
        "child": {**stdio, "args": ["-I", HOSTILE, "good"]},
        "dying": {**stdio, "args": ["-I", HOSTILE, "dies-in-call"]},
    }
    (data / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    model = f'model = "openai:m"\nbase_url = "{hostile}/html/model"\napi_key = "{SECRETS["model"]}"\n'
    (data / "toolyard.toml").write_text(f'log_level = "debug"\n[models.one]\n{model}')


@pytest.fixture
async def logged_site(tmp_path: Path, hostile_http: ListeningProgram) -> AsyncIterator[LoggedServe]:
    data = tmp_path / "data"
    configure(data, hostile_http.url)
    words = [sys.executable, "-m", "toolyard", "--data-dir", str(data), "serve", "--port", "0"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    async with aiohttp.ClientSession() as session:
        site = LoggedServe("", data, process, session)
        reading = asyncio.create_task(site.read())
        try:
            async with asyncio.timeout(40):
                while not any("listening on" in line for line in site.log):
                    await asyncio.sleep(0.05)
            line = next(line for line in site.log if "listening on" in line)
            site.url = line.split("listening on ")[1].split()[0].rstrip("/")
            yield site
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), 30)
            await reading


async def use(served: LoggedServe, hostile: str) -> None:
    """Let every secret do its work, well and badly."""
    choice = {"kind": "header", "key": "X-Key"}
    server = {"name": "Reg", "url": f"{hostile}/good/reg", "private_addresses": True, "choices": [choice]}
    response = await served.post("/api/v1/servers", server)
    draft = {"server_id": response["id"], "slug": "mine", "value": SECRETS["instance"]}
    await served.post("/api/v1/instances", draft)
    for name in ("http_echo", "refusing_echo", "child_echo", "dying_echo", "oauth_echo", "mcp_mine__echo"):
        await served.post(f"/api/v1/tools/{name}/call", {"arguments": {"text": "hello"}})
    oauth = {"kind": "oauth", "client_id": "us", "client_secret": SECRETS["registry client"]}
    server = {"name": "OAuth", "url": f"{hostile}/status-401/two?when=always", "choices": [oauth]}
    response = await served.post("/api/v1/servers", {**server, "private_addresses": True})
    await served.post("/api/v1/instances", {"server_id": response["id"], "slug": "signed"})
    model = {"name": "two", "provider": "openai", "model": "m", "api_key": SECRETS["stored model"]}
    address = {"base_url": f"{hostile}/html/model", "private_addresses": True}
    assert (await served.post("/api/v1/model-entries", {**model, **address}))["has_api_key"]
    await served.post("/api/v1/model-entries/two/test", {})
    for name in ("one", "two"):
        chat = await served.post("/api/v1/chats", {"model": name})
        await served.post(f"/api/v1/chats/{chat['id']}/messages", {"text": "hello"})


async def test_no_secret_shows_anywhere(logged_site: LoggedServe, hostile_http: ListeningProgram) -> None:
    await use(logged_site, hostile_http.url)
    response = await logged_site.session.get(f"{hostile_http.url}/journal/secrets")
    assert SECRETS["header"] in await response.text()
    response = await logged_site.session.get(f"{hostile_http.url}/journal/reg")
    assert SECRETS["instance"] in await response.text()

    texts_by_place: dict[str, str] = {}
    document = json.loads((await logged_site.get("/api/v1/openapi.json")).partition("\n")[2])
    plain = [path for path, methods in document["paths"].items() if "get" in methods and "{" not in path]
    pages = [each.path for each in ui.router.build() if "GET" in each.methods and "{" not in each.path]
    pages += ["/metrics", "/ui/admin/models/two/edit"]
    for kind in ("servers", "instances", "chats"):
        items = json.loads((await logged_site.get(f"/api/v1/{kind}")).partition("\n")[2])["items"]
        place = {"servers": "admin/mcp", "instances": "mcp", "chats": "chat"}[kind]
        for each in items:
            pages += [f"/ui/{place}/{each['id']}", f"/ui/{place}/{each['id']}/edit"]
            pages += [f"/api/v1/{kind}/{each['id']}", f"/api/v1/{kind}/{each['id']}/export"]
    for path in (*plain, *pages):
        if not path.endswith("/events"):
            texts_by_place[path] = await logged_site.get(path)
    texts_by_place["process list"] = "\n".join(str(each.info) for each in psutil.process_iter(["cmdline"]))
    result = subprocess.run(
        [sys.executable, "-m", "toolyard", "--data-dir", str(logged_site.data), "settings"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    texts_by_place["toolyard settings"] = result.stdout + result.stderr
    texts_by_place["log"] = "".join(logged_site.log)
    own = {logged_site.data / "mcp.json", logged_site.data / "toolyard.toml"}
    for path in logged_site.data.rglob("*"):
        if path.is_file() and path not in own:
            texts_by_place[path.name] = path.read_bytes().decode("latin-1")
    assert len(texts_by_place) > 80
    leaks = [
        f"{kind} in {where}"
        for where, text in texts_by_place.items()
        for kind, it in SECRETS.items()
        if it in text
    ]
    assert leaks == []


async def test_log_lines_cannot_be_forged(logged_site: LoggedServe) -> None:
    name = quote(f"x\n{FORGED_LINE}\n", safe="")
    await logged_site.post(f"/api/v1/tools/{name}/call", {"arguments": {}})
    await logged_site.get(f"/ui/{name}")
    await logged_site.post("/api/v1/chats", {"title": f"x\n{FORGED_LINE}\n"})
    await logged_site.post(
        "/api/v1/servers", {"name": f"x\r\n{FORGED_LINE}", "url": f"http://127.0.0.1:1/\n{FORGED_LINE}"}
    )
    await logged_site.post("/api/v1/tools/child_echo/call", {"arguments": {"text": f"\n{FORGED_LINE}\n"}})
    await logged_site.get("/healthz")
    assert [line for line in logged_site.log if line.startswith(FORGED_LINE[:40])] == []
