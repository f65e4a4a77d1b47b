"""Bad servers and a good one beside them, in one manager."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp.web
import pytest
from tests.tool_calls import call_tool

from toolyard.clients import ConnectionManager
from toolyard.clients.process_pool import ProcessPool
from toolyard.errors import ServerError
from toolyard.types.server import (
    HttpSpec,
    InstanceRef,
    ProtocolEra,
    Server,
    State,
    Status,
    StdioSpec,
    Timeouts,
)

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Fail a test of this folder that leaks tasks, descriptors or processes."""


@pytest.fixture
def short() -> Timeouts:
    """Timeouts for servers that will not answer."""
    return Timeouts(connect=1.0, silence=0.5, call=2.0)


PATIENT = Timeouts(connect=120.0, silence=120.0, call=180.0)
"""For servers that end their calls themselves, even on a busy machine."""
BUSY_MACHINE_SECONDS = 90.0
"""Seconds of delay on a busy machine. Less than ``PATIENT``: what takes longer was ended by a timeout."""


@dataclass
class Journal:
    """The journal that a bad server writes, one JSON object per line."""

    path: Path

    def entries(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def starts(self) -> list[int]:
        return [entry["start"] for entry in self.entries() if "start" in entry]

    def processes(self) -> list[int]:
        return [entry["process"] for entry in self.entries() if "process" in entry]

    def messages(self, method: str | None = None) -> list[dict[str, Any]]:
        messages = [entry["message"] for entry in self.entries() if "message" in entry]
        return [message for message in messages if method is None or message.get("method") == method]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of the bad stdio servers of this test."""
    return Journal(tmp_path / "journal")


@pytest.fixture
def bad(hostile_stdio: str, journal: Journal) -> Callable[..., Server]:
    """``bad(mode, *flags, **keys)``: the definition of a stdio server with that misbehaviour."""

    def make(mode: str, *flags: str, **keys: Any) -> Server:
        words = ("-I", "-S", hostile_stdio, mode, "--journal", str(journal.path), *flags)
        keys = {"timeouts": PATIENT, "id": "bad", **keys}
        return Server(transport=StdioSpec(sys.executable, words), **keys)

    return make


@dataclass
class HostileHttp:
    """``web(mode, **options)``: the definition of an HTTP server with that misbehaviour, and its journal."""

    base: str
    key: str = field(default_factory=lambda: secrets.token_hex(6))

    def url(self, mode: str, **options: str) -> str:
        return f"{self.base}/{mode}/{self.key}?{urlencode(options)}"

    def __call__(self, mode: str, *, keys: Mapping[str, Any] | None = None, **options: str) -> Server:
        kind = "sse" if options.get("era") == "sse" else "http"
        spec = HttpSpec(self.url(mode, **options), type=kind)
        return Server(**{"id": "bad", "transport": spec, "timeouts": PATIENT, **(keys or {})})

    def seen(self, suffix: str = "") -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.base}/journal/{self.key}{suffix}", timeout=30) as answer:
            return json.load(answer)

    def messages(self, method: str) -> list[dict[str, Any]]:
        """Return the received messages of one method, each with its ``headers`` and ``connection``."""
        return [entry for entry in self.seen() if entry.get("message", {}).get("method") == method]


@pytest.fixture
def web(hostile_http: ListeningProgram) -> HostileHttp:
    """Bad HTTP servers, under a key of this test."""
    return HostileHttp(hostile_http.url)


@pytest.fixture
def good(hostile_stdio: str) -> Server:
    """The definition of a server that works."""
    return Server("good", StdioSpec(sys.executable, ("-I", "-S", hostile_stdio, "good")))


@pytest.fixture
async def processes(request: pytest.FixtureRequest) -> AsyncIterator[ProcessPool]:
    """A pool for ``open_manager(…, processes=processes)``. Its parameter is the number of seconds for which
    processes may go on after SIGTERM."""
    pool = ProcessPool(sigterm_grace_seconds=request.param)
    yield pool
    await pool.close()


@pytest.fixture
def open_manager(good: Server) -> Callable[..., AbstractAsyncContextManager[ConnectionManager]]:
    """``async with open_manager(*servers, **options) as manager``: those servers, with a good one beside them
    that must work all the while."""

    @contextlib.asynccontextmanager
    async def make(*servers: Server, **options: Any) -> AsyncIterator[ConnectionManager]:
        async with ConnectionManager([good, *servers], **options) as manager:
            assert await echo(manager) == "before"
            yield manager
            assert await echo(manager, "after") == "after"
            assert manager.status("good").connects == 1

    return make


async def echo(manager: ConnectionManager, text: str = "before") -> str:
    result = await call_tool(manager, "good", "echo", {"text": text})
    return result["content"][0]["text"]


@pytest.fixture
def max_duration() -> Callable[[float], contextlib.AbstractContextManager[None]]:
    """``with max_duration(seconds)``: fail if the block takes longer on an idle machine."""

    @contextlib.contextmanager
    def measure(seconds: float) -> Iterator[None]:
        start = time.monotonic()
        yield
        duration = time.monotonic() - start
        assert duration < seconds + BUSY_MACHINE_SECONDS, (
            f"took {duration:.2f} s, far more than {seconds:g} s"
        )

    return measure


@pytest.fixture
def assert_cause() -> Callable[[Status | ServerError, str], None]:
    """``assert_cause(status, words)``: assert that the cause is one sentence with these words."""

    def check(outcome: Status | ServerError, words: str) -> None:
        cause = outcome.cause
        assert cause is not None
        assert words in cause, cause
        assert "\n" not in cause
        assert "\r" not in cause
        assert len(cause) < 500
        assert cause.isprintable(), repr(cause)
        if isinstance(outcome, Status):
            assert outcome.state in (State.FAILED, State.NEEDS_AUTH, State.IDLE)
        else:
            assert outcome.server == "bad"

    return check


# A server with accounts.


@dataclass
class Accounts:
    """A legacy HTTP server that identifies users by the header ``X-Key``, with the received requests by user.

    Everyone has ``whoami``, ``complain`` and a personal tool ``only_NAME``. Each connection is a session.
    """

    url: str = ""
    users: dict[str, str] = field(default_factory=dict[str, str])
    """Names by key."""
    methods: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sessions: dict[str, str] = field(default_factory=dict[str, str])
    """Names by open session."""
    more: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Further tools, for everyone."""
    failing: set[str] = field(default_factory=set[str])
    """Users for whom listing tools fails."""
    held: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict[Any, asyncio.Event])
    """Events that hold a user's ``tools/list`` or ``DELETE`` until they are set."""

    def key(self, name: str) -> str:
        """Return a key of this user."""
        key = f"key-of-{name}-{secrets.token_hex(4)}"
        self.users[key] = name
        return key

    def server(self, id: str, **keys: Any) -> Server:
        """Return a definition for everyone, with the user ``common``."""
        spec = HttpSpec(self.url, {"X-Key": self.key("common")})
        return Server(id, spec, **{"protocol": ProtocolEra.LEGACY, "timeouts": PATIENT, **keys})

    def instance(self, owner: str, slug: str = "desk", **keys: Any) -> Server:
        """Return an owner's instance, with a key of its own."""
        spec = InstanceRef(owner, slug, keys.pop("tool_filter", None))
        keys = {"protocol": ProtocolEra.LEGACY, "timeouts": PATIENT, "cache_ttl": 0.0, **keys}
        headers = {"X-Key": self.key(owner)}
        return Server(spec.server_id, HttpSpec(self.url, headers), instance=spec, **keys)

    def opened(self, name: str) -> list[str]:
        return sorted(session for session, user in self.sessions.items() if user == name)

    def count(self, name: str, method: str) -> int:
        return self.methods.get(name, []).count(method)

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        key = request.headers.get("X-Key", "")
        name = self.users.get(key)
        if name is None:
            return aiohttp.web.Response(status=401, text=f"the key {key} is wrong")
        session = request.headers.get("Mcp-Session-Id", "")
        if request.method == "DELETE":
            await self._wait(name, "DELETE")
            self.sessions.pop(session, None)
            return aiohttp.web.Response()
        if request.method != "POST":
            return aiohttp.web.Response(status=405)
        message = await request.json()
        method, id, headers = message["method"], message.get("id"), {}
        if method == "initialize":
            session = secrets.token_hex(8)
            self.sessions[session] = name
            headers["Mcp-Session-Id"] = session
        elif self.sessions.get(session) != name:
            return aiohttp.web.Response(status=404)
        self.methods.setdefault(name, []).append(method)
        if id is None:
            return aiohttp.web.Response(status=202)
        await self._wait(name, method)
        outcome = self._outcome(method, name, key, message.get("params") or {})
        return aiohttp.web.json_response({"jsonrpc": "2.0", "id": id, **outcome}, headers=headers)

    async def _wait(self, name: str, kind: str) -> None:
        if (event := self.held.get((name, kind))) is not None:
            await event.wait()

    def _outcome(self, method: str, name: str, key: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            info = {"name": "accounts", "version": "1"}
            offer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            return {"result": offer}
        if method == "tools/list" and name not in self.failing:
            names = ("whoami", "complain", f"only_{name}")
            tools = [{"name": each, "inputSchema": {"type": "object"}} for each in names]
            return {"result": {"tools": [*tools, *self.more]}}
        if method == "tools/call" and params["name"] != "complain":
            return {"result": {"content": [{"type": "text", "text": f"{name} {params['name']}"}]}}
        return {"error": {"code": -32000, "message": f"{name} may not with {key}"}}


@pytest.fixture
async def accounts() -> AsyncIterator[Accounts]:
    """A server with accounts on a loopback port."""
    accounts = Accounts()
    app = aiohttp.web.Application()
    app.router.add_route("*", "/mcp", accounts.answer)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    services = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await services.start()
    accounts.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    yield accounts
    await runner.cleanup()
