"""A running Toolyard to talk to: as a process of its own, as people start it, or in this one, for speed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from tests import prefork
from tests.sqlite_template import copy_template

from toolyard.agents.definitions.watch import LoadedAgents
from toolyard.config import load_config, load_settings
from toolyard.core.services import Services
from toolyard.types.account import Right, Role, TokenScope, User
from toolyard.types.agent import Agent
from toolyard.web.access.cookies import cookie_name
from toolyard.web.app import AppTimeouts, make_app
from toolyard.web.http_server.run import HttpServer
from toolyard.web.http_server.socket import open_listener
from toolyard.web.public_urls import PublicUrls

ROOT = Path(__file__).parent.parent.parent
DEMO = ROOT / "src/toolyard/cli/demo_server.py"
TINY = ROOT / "tests/servers/tiny_server.py"
T = TypeVar("T")
PASSWORD = "correct horse battery staple"
EVERY_RIGHT = TokenScope(frozenset(Right))


@pytest.fixture
def demo() -> dict[str, Any]:
    """The entry of the demo server."""
    return {"command": sys.executable, "args": ["-I", "-S", str(DEMO)]}


@pytest.fixture
def minimal_server() -> dict[str, Any]:
    """The entry of a server that can keep a call waiting."""
    return {"command": sys.executable, "args": ["-I", "-S", str(TINY)]}


# Asking.


@dataclass
class HttpReply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class HttpClient:
    """Asks one Toolyard, as one person."""

    url: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    session: aiohttp.ClientSession = field(init=False)

    def __post_init__(self) -> None:
        jar = aiohttp.DummyCookieJar()
        self.session = aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(60))

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> HttpReply:
        headers = {**self.headers, **options.pop("headers", {})}
        options.setdefault("allow_redirects", False)
        if body is not None:
            options["json"] = body
        async with self.session.request(method, self.url + path, headers=headers, **options) as response:
            return HttpReply(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> HttpReply:
        return await self.ask("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> HttpReply:
        return await self.ask("POST", path, body, **options)

    async def patch(self, path: str, body: Any = None, **options: Any) -> HttpReply:
        return await self.ask("PATCH", path, body, **options)

    async def delete(self, path: str, **options: Any) -> HttpReply:
        return await self.ask("DELETE", path, **options)

    async def close(self) -> None:
        await self.session.close()


# A process of its own.


@dataclass
class ToolyardProcess:
    """``toolyard serve``, running."""

    process: subprocess.Popen[str]
    url: str
    data: Path
    seconds: float
    """From its start to the line that it prints."""
    log: Path

    @property
    def errors(self) -> str:
        return self.log.read_text()

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def ended(self, seconds: float = 60.0) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.to_thread(self.process.wait, seconds)


Starting = Callable[..., Awaitable[ToolyardProcess]]


def environment(data: Path, **more: str) -> dict[str, str]:
    """What a process of ours gets: nothing of whoever runs the tests."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    own = {"HOME": str(data), "TOOLYARD_DATA_DIR": str(data), "TOOLYARD_STANDALONE": "1"}
    return {**keep, **own, **more}


def write_config(data: Path, servers: Mapping[str, Any]) -> Path:
    """The configuration, where it is used without being named."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Starting]:
    """``await serve(config, "--host", …, TOOLYARD_…=…)``: the real command, once it listens."""
    processes: list[ToolyardProcess] = []

    async def start(
        config: Mapping[str, Any] | None = None,
        *arguments: str,
        data: Path | None = None,
        program: Sequence[str] = ("-m", "toolyard"),
        **env: str,
    ) -> ToolyardProcess:
        folder = data or tmp_path / f"data{len(processes)}"
        write_config(folder, config or {})
        words = [sys.executable, *program, "serve", "--port", "0", *arguments]
        log, start = folder / "stderr.txt", time.monotonic()
        with log.open("w") as errors:
            process = prefork.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment(folder, **env),
            )
        started_process = ToolyardProcess(process, "", folder, 0.0, log)
        processes.append(started_process)
        started_process.url = await asyncio.wait_for(asyncio.to_thread(_address, started_process), 120)
        started_process.seconds = time.monotonic() - start
        return started_process

    yield start
    for toolyard_process in processes:
        with contextlib.suppress(ProcessLookupError):
            toolyard_process.process.kill()
        toolyard_process.process.wait(30)
        assert toolyard_process.process.stdout is not None
        toolyard_process.process.stdout.close()


def _address(toolyard_process: ToolyardProcess) -> str:
    assert toolyard_process.process.stdout is not None
    for line in toolyard_process.process.stdout:
        if line.startswith("Toolyard is listening on "):
            return line.split()[-1].rstrip("/")
    raise AssertionError(f"it does not listen: {toolyard_process.errors}")


# In this process.


@dataclass
class SignedInUser:
    """Somebody with an account, a browser that is signed in, and a token for everything they may do."""

    user: User
    browser: HttpClient
    token: HttpClient
    secret: str


@dataclass
class InProcessApp:
    """A Toolyard in this process."""

    services: Services
    app: FastAPI
    url: str
    clients: list[HttpClient] = field(default_factory=list[HttpClient])

    def part(self, kind: type[T]) -> T:
        """One of the objects that its handlers use."""
        return self.app.state.services[kind]

    def client(self, **headers: str) -> HttpClient:
        """Somebody without a cookie and a token, unless these headers have one."""
        client = HttpClient(self.url, headers)
        self.clients.append(client)
        return client

    async def person(self, name: str, role: str = "user", scope: TokenScope | None = None) -> SignedInUser:
        """In password mode: a new account. It can sign in with PASSWORD, and is signed in already."""
        people, accounts = self.services.people, self.services.database.accounts
        created_user = await accounts.add_user(name, Role(role))
        await accounts.set_password_hash(created_user.id, password_hash())
        user = await accounts.get_user(created_user.id)
        assert user is not None
        rights = scope or TokenScope(
            frozenset(each for each in Right if role == "admin" or each is not Right.ADMIN)
        )
        _, secret = await people.create_token(user, "test", rights, None)
        cookie = f"{cookie_name(self.services.settings)}={await people.begin_session(user)}"
        browser = self.client(Cookie=cookie)
        return SignedInUser(user, browser, self.client(Authorization=f"Bearer {secret}"), secret)


@cache
def password_hash() -> str:
    """A cheap one: they are slow by design."""
    return PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)


Opening = Callable[..., Awaitable[InProcessApp]]


@pytest.fixture
async def open_site(tmp_path: Path) -> AsyncIterator[Opening]:
    """``await open_site(config, people_mode="password")``: the same application on a real socket."""
    stack = contextlib.AsyncExitStack()

    async def start(
        config: Mapping[str, Any] | None = None,
        *,
        data: Path | None = None,
        agents: Sequence[Agent] = (),
        timeouts: AppTimeouts = AppTimeouts(),  # noqa: B008 - frozen
        **settings: Any,
    ) -> InProcessApp:
        folder = data or tmp_path / f"local{time.monotonic_ns()}"
        write_config(folder, config or {})
        if "database_url" not in settings:
            copy_template(folder)
        # Titles are written at some time after a turn, which few tests are about.
        quiet = {"warm": False, "chat_titles": False}
        chosen_settings = load_settings(folder, env={}, overrides={**quiet, **settings})
        configuration = load_config(data_dir=folder, cwd=folder, env=dict(os.environ))
        listener = open_listener("127.0.0.1", 0)
        links = PublicUrls(chosen_settings).build_links(listener.address)
        loaded_agents = LoadedAgents(chosen_settings.agents_path or folder / "AGENTS.md", tuple(agents))
        services = await Services.open(configuration, chosen_settings, folder, loaded_agents, links)
        stack.push_async_callback(services.close)
        app = make_app(services, timeouts)
        http_server = HttpServer(app, listener)
        await http_server.start()
        local = InProcessApp(services, app, listener.address)

        async def stop() -> None:
            for client in local.clients:
                await client.close()
            services.stop()
            await http_server.drain()
            await http_server.wait_for_shutdown_work(services.end_work())
            await http_server.cancel_open_requests()

        stack.push_async_callback(stop)
        return local

    async with stack:
        yield start


@pytest.fixture
async def local_site(open_site: Opening, demo: dict[str, Any]) -> InProcessApp:
    """The mode none, with the demo server."""
    return await open_site({"demo": demo})


@pytest.fixture
async def password_site(open_site: Opening, demo: dict[str, Any]) -> InProcessApp:
    """The mode password, with the demo server."""
    return await open_site({"demo": demo}, people_mode="password")
