"""Replicas: `toolyard serve` twice, as processes of their own, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests import prefork
from tests.ports import free_port
from yarl import URL

if TYPE_CHECKING:
    from tests.conftest import ProgramStarter

ROOT = Path(__file__).parent.parent.parent
KEY = "a key that both replicas have"
USER = {"Remote-User": "ann"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@dataclass
class ReplicaProcess:
    """One process, with a folder of its own."""

    port: int
    env: dict[str, str]
    program: Sequence[str] = ("-m", "toolyard")
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        words = [sys.executable, *self.program, "serve"]
        env = {**self.env, "TOOLYARD_PORT": str(self.port)}
        self.process = prefork.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=env["HOME"]
        )
        try:
            await asyncio.wait_for(asyncio.to_thread(self._listening), 90)
        except BaseException:
            self.kill()
            raise

    def _listening(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        texts: list[str] = []
        for line in self.process.stdout:
            texts.append(line)
            if line.startswith("Toolyard is listening on "):
                return
        raise AssertionError("".join(texts))

    def kill(self) -> None:
        """At once, and with all that is held here for it."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    async def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                assert await asyncio.to_thread(self.process.wait, 60) == 0
            finally:
                self.kill()


@contextlib.asynccontextmanager
async def run_together(replicas: Sequence[ReplicaProcess]) -> AsyncIterator[None]:
    """All of them, begun at the same moment. What began is ended, however that went."""
    try:
        results = await asyncio.gather(*(replica.start() for replica in replicas), return_exceptions=True)
        for failed_response in filter(None, results):
            raise failed_response
        yield
    finally:
        await asyncio.gather(*(replica.stop() for replica in replicas))


@dataclass
class Cluster:
    """Two replicas, a provider that is told how to behave, and one person's browser."""

    replicas: list[ReplicaProcess]
    provider: str
    session: aiohttp.ClientSession
    cookies: dict[str, str] = field(default_factory=dict[str, str])

    async def ask(self, replica: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        url = URL(self.replicas[replica].url + path, encoded=True)
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        async with self.session.request(
            method, url, json=body, headers={**USER, "Cookie": cookie}, allow_redirects=False
        ) as response:
            self.cookies |= {name: morsel.value for name, morsel in response.cookies.items()}
            if response.content_type.endswith("json"):
                return response.status, await response.json()
            return response.status, response.headers.get("Location") or await response.text()

    async def provider_does(self, **settings: Any) -> None:
        async with self.session.patch(f"{self.provider}/control", json=settings) as response:
            assert response.status == 200

    async def refreshes(self) -> int:
        async with self.session.get(f"{self.provider}/log") as response:
            entries = await response.json()
        return sum(e["what"] == "token" and e["grant_type"] == "refresh_token" for e in entries)

    async def whoami(self, replica: int) -> str:
        status, response = await self.ask(
            replica, "POST", "/api/v1/tools/mcp_work__whoami/call", {"arguments": {}}
        )
        return str(response) if status != 200 else response["text"]

    async def expire(self) -> int:
        """Wait until the access token, which lives for a second, has run out; refreshes so far."""
        while True:
            before = await self.refreshes()
            await asyncio.sleep(1.2)
            if await self.refreshes() == before:
                return before


@pytest.fixture
async def cluster(postgres_url: str, tmp_path: Path, start_program: ProgramStarter) -> AsyncIterator[Cluster]:
    provider = start_program(sys.executable, "-I", ROOT / "tests/oauth/authorization_server.py", "{port}").url
    replicas: list[ReplicaProcess] = []
    public = free_port()
    for index in range(2):
        home = tmp_path / f"replica{index}"
        home.mkdir()
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TOOLYARD_DATA_DIR": str(home),
            "TOOLYARD_DATABASE_URL": postgres_url,
            "TOOLYARD_SECRET_KEY": KEY,
            "TOOLYARD_PEOPLE_MODE": "proxy",
            "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1",
            "TOOLYARD_ADMINS": "ann",
            "TOOLYARD_PUBLIC_URL": f"http://127.0.0.1:{public}",
        }
        # The provider sends people back to the second one, as a balancer might.
        replicas.append(ReplicaProcess(public if index else free_port(), env))
    jar = aiohttp.DummyCookieJar()
    # Both open an empty database at the same moment: one of them makes its tables.
    async with aiohttp.ClientSession(cookie_jar=jar) as session, run_together(replicas):
        yield Cluster(replicas, provider, session)


async def test_a_sign_in_begun_on_one_replica_is_finished_on_another_and_tokens_are_refreshed_once(
    cluster: Cluster,
) -> None:
    await cluster.provider_does(life=1)
    draft = {
        "name": "Guarded",
        "url": f"{cluster.provider}/mcp",
        "private_addresses": True,
        "choices": [{"kind": "oauth"}],
    }
    status, server = await cluster.ask(0, "POST", "/api/v1/servers", draft)
    assert status == 201, server
    status, instance = await cluster.ask(
        1, "POST", "/api/v1/instances", {"server_id": server["id"], "slug": "work"}
    )
    assert status == 201, instance
    status, _ = await cluster.ask(0, "GET", "/ui/mcp")
    assert status == 200

    # Begun on the first, finished on the second.
    status, connect_response = await cluster.ask(0, "POST", f"/api/v1/instances/{instance['id']}/connect")
    assert status == 200, connect_response
    at_provider = URL(connect_response["url"], encoded=True)
    async with cluster.session.get(at_provider, allow_redirects=False) as response:
        back = URL(response.headers["Location"], encoded=True)
    assert str(back.origin()) == cluster.replicas[1].url
    status, place = await cluster.ask(1, "GET", back.raw_path_qs)
    assert (status, re.sub(r"#.*", "", str(place))) == (303, "/ui/mcp")

    # A replayed callback finds nothing, on either.
    for replica in (0, 1):
        status, _ = await cluster.ask(replica, "GET", back.raw_path_qs)
        assert status >= 400

    # Fifty calls at once on two replicas with a token that has run out: one refresh.
    before = await cluster.expire()
    await cluster.provider_does(token_delay=0.2)
    await cluster.provider_does(life=3600)
    answers = await asyncio.gather(*(cluster.whoami(index % 2) for index in range(50)))
    assert set(answers) == {answers[0]}
    assert "somebody" in answers[0]
    assert await cluster.refreshes() == before + 1

    # Both stop; the token runs out meanwhile; after the restart nobody has to sign in.
    await cluster.provider_does(life=1, token_delay=0)
    async with cluster.session.post(f"{cluster.provider}/forget?what=access"):
        pass
    assert "somebody" in await cluster.whoami(0)
    await asyncio.gather(*(replica.stop() for replica in cluster.replicas))
    before = await cluster.expire()
    await asyncio.gather(*(replica.start() for replica in cluster.replicas))
    await cluster.provider_does(life=3600)
    assert "somebody" in await cluster.whoami(1)
    assert await cluster.refreshes() == before + 1

    # Taken away on one, gone on the other.
    status, _ = await cluster.ask(1, "DELETE", f"/api/v1/instances/{instance['id']}")
    assert status == 204
    status, reported_response = await cluster.ask(
        0, "POST", "/api/v1/tools/mcp_work__whoami/call", {"arguments": {}}
    )
    assert status == 404, reported_response


# What lives in the database alone.

TINY = ROOT / "tests/servers/tiny_server.py"

# Without word of it, this replica would believe a token for an hour after it was revoked.
CREDULOUS = """
from toolyard.cli import main
from toolyard.web.app import AppTimeouts, make_app
assert make_app.__defaults__ == (AppTimeouts(admission=1.0),)
make_app.__defaults__ = (AppTimeouts(admission=3_600.0),)
main()
"""


async def mcp(cluster: Cluster, replica: int, token: str, name: str, arguments: Any) -> tuple[int, Any]:
    """Call one of the meta tools at a replica's gateway, with a token."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    url = f"{cluster.replicas[replica].url}/mcp?mode=meta"
    async with cluster.session.post(url, json=body, headers=headers) as response:
        text = await response.text()
    if response.status != 200:
        return response.status, text
    if not text.startswith("{"):
        text = next(line for line in text.splitlines() if line.startswith("data: "))[6:]
    return 200, json.loads(json.loads(text)["result"]["content"][0]["text"])


async def make_token(cluster: Cluster, replica: int, name: str) -> tuple[str, str]:
    """Its id, and its text."""
    status, token_response = await cluster.ask(
        replica, "POST", "/api/v1/tokens", {"name": name, "scope": {"rights": ["call"]}}
    )
    assert status == 201, token_response
    return token_response["id"], token_response["token"]


@pytest.fixture
async def two_replicas(postgres_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    """Two replicas that hold on to what they looked up, with one server of the configuration."""
    replicas: list[ReplicaProcess] = []
    for index in range(2):
        home = tmp_path / f"replica{index}"
        home.mkdir()
        entry = {"command": sys.executable, "args": ["-I", "-S", str(TINY)], "shared": True}
        (home / "mcp.json").write_text(json.dumps({"mcpServers": {"tiny": entry}}))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TOOLYARD_DATA_DIR": str(home),
            "TOOLYARD_DATABASE_URL": postgres_url,
            "TOOLYARD_SECRET_KEY": KEY,
            "TOOLYARD_PEOPLE_MODE": "proxy",
            "TOOLYARD_TRUSTED_PROXIES": "127.0.0.1",
        }
        replicas.append(ReplicaProcess(free_port(), env, ("-c", CREDULOUS)))
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(cookie_jar=jar) as session, run_together(replicas):
        yield Cluster(replicas, "", session)


async def test_a_token_that_is_revoked_at_one_replica_is_refused_at_once_by_the_other(
    two_replicas: Cluster,
) -> None:
    echo = {"name": "tiny_echo", "arguments": {"needed": 1}}
    token_id, token = await make_token(two_replicas, 0, "revoked")
    _, other = await make_token(two_replicas, 0, "stays")
    for replica in (1, 1, 0):
        for text in (token, other):
            status, answer = await mcp(two_replicas, replica, text, "tools_call", echo)
            assert (status, answer["ok"]) == (200, True)
    status, response = await two_replicas.ask(0, "DELETE", f"/api/v1/tokens/{token_id}")
    assert status == 204, response
    assert (await mcp(two_replicas, 0, token, "tools_call", echo))[0] == 401
    async with asyncio.timeout(30):
        while (await mcp(two_replicas, 1, token, "tools_call", echo))[0] != 401:
            await asyncio.sleep(0.01)
    assert (await mcp(two_replicas, 1, other, "tools_call", echo))[0] == 200


async def test_a_long_result_of_one_replica_is_read_at_the_other(two_replicas: Cluster) -> None:
    _, token = await make_token(two_replicas, 0, "long")
    words = " ".join(f"word{number}" for number in range(20_000))
    long = {"name": "tiny_echo", "arguments": {"needed": 1, "extra": words}}
    status, answer = await mcp(two_replicas, 0, token, "tools_call", long)
    assert (status, answer["ok"]) == (200, True), answer
    assert "word10000" not in json.dumps(answer)
    read_arguments = {"handle": answer["handle"], "grep": "word10000"}
    status, read_response = await mcp(two_replicas, 1, token, "result_read", read_arguments)
    assert (status, read_response["ok"]) == (200, True), read_response
    assert "word10000" in json.dumps(read_response)
