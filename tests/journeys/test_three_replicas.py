"""Three replicas on one PostgreSQL behind nginx, as the documentation sets it up; one of them is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.conftest import ROOT
from tests.journeys.test_replicas import ReplicaProcess, run_together
from tests.ports import free_port

from toolyard.accounts import AccountService
from toolyard.config.settings.table import Settings
from toolyard.store import Database
from toolyard.types.account import Right, Role, TokenScope

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram

KEY = "a key that all replicas have"
CALLS, CLIENTS, KILL_AFTER = 2_000, 64, 500
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "crowd", "version": "1"},
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed; make unit installs it"),
]


def balancer_config(folder: Path, port: int, replicas: list[ReplicaProcess]) -> Path:
    """The example of the documentation, with these ports."""
    page = ROOT / "docs/guides/behind-a-reverse-proxy.md"
    (example,) = re.findall(r"```nginx\n(.*?)```", page.read_text(), re.DOTALL)
    ports = iter(replicas)
    example = re.sub(
        r"server 127.0.0.1:842[123];", lambda _: f"server 127.0.0.1:{next(ports).port};", example
    )
    example = example.replace("listen 127.0.0.1:8420;", f"listen 127.0.0.1:{port};")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = (
        f"daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n"
        f"events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{paths}{example}}}\n"
    )
    path = folder / "nginx.conf"
    path.write_text(text)
    return path


@contextlib.asynccontextmanager
async def run_balancer(folder: Path, replicas: list[ReplicaProcess]) -> AsyncIterator[str]:
    folder.mkdir()
    port = free_port()
    assert NGINX is not None
    config = balancer_config(folder, port, replicas)
    process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")])
    try:
        async with asyncio.timeout(30):
            while True:
                assert process.poll() is None, (folder / "error.log").read_text()
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


async def token(folder: Path, url: str) -> str:
    database = await Database.open(folder, url=url, secret_key=KEY)
    user = await database.accounts.add_user("crowd", Role.USER)
    await database.accounts.set_password_hash(user.id, "none that fits")
    people = AccountService(database.accounts, Settings())
    _, text = await people.create_token(user, "crowd", TokenScope(frozenset({Right.CALL})), None)
    await database.close()
    return text


@dataclass
class RequestRecord:
    """One request and what came of it."""

    began: float
    method: str
    status: int
    answer: dict[str, Any]
    id: int


@dataclass
class MixedClients:
    """Clients that ask for different things, one after the other."""

    url: str
    token: str
    session: aiohttp.ClientSession

    def request(self, number: int) -> tuple[str, dict[str, Any]]:
        kind = number % 10
        if kind == 0:
            return "tools/list", {}
        if kind == 1:
            return "tools/call", {"name": "a_steps", "arguments": {"count": 2, "every": 0.1}}
        name = ("a_echo", "b_echo")[number % 2]
        return "tools/call", {"name": name, "arguments": {"text": f"number {number}"}}

    async def ask(self, number: int) -> RequestRecord:
        method, params = self.request(number)
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}
        start = time.monotonic()
        try:
            async with self.session.post(f"{self.url}/mcp", json=body, headers=headers) as answer:
                text = await answer.text()
        except aiohttp.ClientPayloadError:
            # The answer had begun: nobody in between can say anything else any more.
            broken = {"error": {"message": "it is not known whether it was carried out"}}
            return RequestRecord(start, method, 502, broken, number)
        if text.startswith(("event:", "data:", ":", "id:")):
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1][6:]
        return RequestRecord(start, method, answer.status, json.loads(text), number)


def right(record: RequestRecord) -> bool:
    """Whether the answer is the one to this request."""
    result = record.answer.get("result")
    if result is None or record.answer.get("id") != record.id:
        return False
    if record.method == "tools/list":
        return {"a_echo", "b_echo"} <= {tool["name"] for tool in result["tools"]}
    text = result["content"][0]["text"]
    return text in (f"number {record.id}", "done")


async def test_a_killed_replica_fails_only_its_calls_in_flight(
    postgres_url: str, hostile_http: ListeningProgram, tmp_path: Path
) -> None:
    servers = {name: {"url": f"{hostile_http.url}/good-tools/{name}", "shared": True} for name in ("a", "b")}
    replicas: list[ReplicaProcess] = []
    for number in range(3):
        home = tmp_path / f"replica-{number}"
        home.mkdir()
        (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        env = {
            **os.environ,
            "HOME": str(home),
            "TOOLYARD_DATA_DIR": str(home),
            "TOOLYARD_DATABASE_URL": postgres_url,
            "TOOLYARD_SECRET_KEY": KEY,
            "TOOLYARD_PEOPLE_MODE": "password",
            "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1",
            "TOOLYARD_LIST_DEADLINE": "60",
        }
        replicas.append(ReplicaProcess(free_port(), env))
    text = await token(tmp_path / "replica-0", postgres_url)
    async with (
        run_together(replicas),
        run_balancer(tmp_path / "nginx", replicas) as url,
        aiohttp.ClientSession() as session,
    ):
        for replica in replicas:
            # Each of them has listed the tools before the crowd comes.
            assert right(await MixedClients(replica.url, text, session).ask(0))
        crowd, numbers, records = MixedClients(url, text, session), itertools.count(), list[RequestRecord]()

        async def client() -> None:
            while (number := next(numbers)) < CALLS:
                records.append(await crowd.ask(number))

        async def killer() -> float:
            while len(records) < KILL_AFTER:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(replicas[1].kill)
            return time.monotonic()

        killing = asyncio.create_task(killer())
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        killed_at = await killing
    failed_records = [each for each in records if not right(each)]
    assert len(records) == CALLS
    assert len(failed_records) <= CLIENTS
    assert [each for each in failed_records if each.began > killed_at] == []
    assert {each.status for each in failed_records} <= {502}
    assert all("not known whether" in each.answer["error"]["message"] for each in failed_records)
