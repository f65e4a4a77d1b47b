"""What the tests of this room share: nothing is left behind, and people and servers to store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolyard.auth.storage import OAuthClient, OAuthGrant, PendingSignIn
from toolyard.store import Database
from toolyard.types.account import Role, User
from toolyard.types.registry import AuthChoice, AuthKind, Instance, RegistryServer
from toolyard.types.stored_model import ModelAudience, StoredModel

KEY = "a key for tests, long enough"


@pytest.fixture(autouse=True)
def nothing_left(leaks: None) -> None:
    """Every test of this room closes what it opens."""


@pytest.fixture
async def reopen(
    database_url: str | None, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Database]]]:
    """Open the database again, as another process would; ``key=`` and ``url=`` may differ."""
    databases: list[Database] = []

    async def again(**options: Any) -> Database:
        words = {"url": database_url, "secret_key": KEY, **options}
        databases.append(await Database.open(tmp_path / "data", **words))
        return databases[-1]

    yield again
    for one in databases:
        await one.close()


@pytest.fixture
async def ann(database: Database) -> User:
    return await database.accounts.add_user("Ann", Role.USER)


@pytest.fixture
async def bob(database: Database) -> User:
    return await database.accounts.add_user("Bob", Role.USER)


@pytest.fixture
def server() -> RegistryServer:
    """With everything set that can be set."""
    return RegistryServer(
        id="server-1",
        name="GitHub",
        url="https://api.example/mcp",
        transport="sse",
        enabled=False,
        description="What it is for",
        private_addresses=True,
        allow_tools=("read*", "list"),
        deny_tools=("read_secret",),
        choices=(
            AuthChoice(AuthKind.PUBLIC, id="c-public", label="Nobody"),
            AuthChoice(AuthKind.HEADER, id="c-header", place="query", key="api_key"),
            AuthChoice(
                AuthKind.OAUTH,
                id="c-oauth",
                client_id="us",
                client_secret="the-client-secret",
                scopes=("repo", "user"),
                resource="https://api.example/",
                legacy_discovery=True,
            ),
        ),
        created_at=1.5,
        updated_at=2.5,
    )


@pytest.fixture
async def instance(database: Database, ann: User, server: RegistryServer) -> Instance:
    """Ann's, stored."""
    await database.registry.add_server(server)
    instance = Instance(
        server.id,
        "c-header",
        "GitHub",
        "My GitHub",
        id="instance-1",
        user_id=ann.id,
        value="the-header-value",
    )
    await database.registry.add_instance(instance)
    return instance


@pytest.fixture
def stored_model() -> StoredModel:
    """With everything set that can be set."""
    return StoredModel(
        name="house",
        provider="openai",
        model="Qwen/Qwen3-8B",
        label="Ours",
        base_url="http://10.0.0.5:8000/v1",
        private_addresses=True,
        api_key="the-model-key",
        key_variable="TOOLYARD_MODEL_KEY_HOUSE",
        audience=ModelAudience.PEOPLE,
        people=("one", "two"),
        input_price=0.25,
        output_price=2.0,
        sees=True,
        hears=False,
        temperature=0.2,
        context=32_000,
        created_at=1.5,
        updated_at=2.5,
    )


@pytest.fixture
def client() -> OAuthClient:
    return OAuthClient(
        "https://issuer.example",
        "client-id",
        "https://us.example/callback",
        "dynamic",
        auth_method="client_secret_basic",
        secret="the-registered-secret",
        expires_at=12.5,
        scopes=frozenset({"a", "b"}),
    )


@pytest.fixture
def grant(client: OAuthClient) -> OAuthGrant:
    return OAuthGrant(
        server_url="https://api.example/mcp",
        issuer=client.issuer,
        client=client,
        token_endpoint="https://issuer.example/token",
        resource="https://api.example/",
        requested=("a", "b"),
        scopes=("a",),
        access_token="the-access-token",
        refresh_token="the-refresh-token",
        issued_at=10.0,
        expires_at=3610.0,
        wanted=("c",),
    )


@pytest.fixture
def pending(client: OAuthClient) -> PendingSignIn:
    return PendingSignIn(
        state="the-state",
        verifier="the-verifier",
        key="instance:instance-1",
        owner="ann browser",
        client=replace(client, scopes=None),
        token_endpoint="https://issuer.example/token",
        iss_promised=True,
        resource=None,
        scopes=("a",),
        server_url="https://api.example/mcp",
        private_addresses=None,
        began_at=1_000_000.0,
    )


class Process:
    """A Python program of its own that has the database open as ``database``; each line that it prints is an
    answer."""

    def __init__(self, code: str, data_dir: Path, url: str | None) -> None:
        lines = "\n".join(f"        {line}" for line in code.strip().splitlines())
        program = f"""
import asyncio, sys
from pathlib import Path
from toolyard.store import Database
def say(*words):
    print(*words, flush=True)
async def told():
    return await asyncio.to_thread(sys.stdin.readline)
async def main():
    database = await Database.open(Path({str(data_dir)!r}), url={url!r}, secret_key={KEY!r})
    try:
{lines}
    finally:
        await database.close()
asyncio.run(main())
"""
        self._words = [sys.executable, "-c", program]
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Process:
        pipe = subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(*self._words, stdin=pipe, stdout=pipe)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        if self.process.returncode is None:
            self.process.stdin.close()
            try:
                await asyncio.wait_for(self.process.wait(), 30)
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    async def line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), 30)).decode().strip()

    async def tell(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        await self.process.stdin.drain()

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()


@pytest.fixture
def process(database_url: str | None, tmp_path: Path) -> Callable[[str], Process]:
    """``async with process(code) as other``: code that runs in a process of its own, on the same database."""
    return lambda code: Process(code, tmp_path / "data", database_url)


@pytest.fixture
def rows(database: Database) -> Callable[[str], Awaitable[list[dict[str, Any]]]]:
    """All rows of a table as they are stored, by their first column that tells them apart."""

    async def find_rows(table: str) -> list[dict[str, Any]]:
        from sqlalchemy import text

        all_rows = await database.executor.read(
            lambda connection: connection.execute(text(f"SELECT * FROM {table}")).mappings().all()
        )
        plain = [dict(row) for row in all_rows]
        return sorted(plain, key=lambda row: str(row.get("key", row.get("digest", row.get("id")))))

    return find_rows
