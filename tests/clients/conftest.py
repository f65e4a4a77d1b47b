"""Bad servers and a good one beside them, in one manager."""

from __future__ import annotations

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
from typing import Any
from urllib.parse import urlencode

import pytest

from toolyard.clients import ClientManager
from toolyard.errors import ServerError
from toolyard.model.server import HttpSpec, Server, StdioSpec, Timeouts
from toolyard.model.status import State, Status


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Every test of this room ends with the tasks, descriptors and processes that it began with."""


@pytest.fixture
def short() -> Timeouts:
    """Timeouts for servers that will not answer."""
    return Timeouts(connect=1.0, silence=0.5, call=2.0)


PATIENT = Timeouts(connect=20.0, silence=20.0, call=30.0)
"""For servers that end their calls themselves, however busy the machine is."""


@dataclass
class Journal:
    """What a bad server wrote down about itself, one JSON object a line."""

    path: Path

    def entries(self) -> list[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def starts(self) -> list[int]:
        return [entry["start"] for entry in self.entries() if "start" in entry]

    def processes(self) -> list[int]:
        return [entry["process"] for entry in self.entries() if "process" in entry]

    def messages(self, method: str | None = None) -> list[dict[str, Any]]:
        found = [entry["message"] for entry in self.entries() if "message" in entry]
        return [message for message in found if method is None or message.get("method") == method]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of the bad stdio servers of this test."""
    return Journal(tmp_path / "journal")


@pytest.fixture
def bad(hostile_stdio: str, journal: Journal) -> Callable[..., Server]:
    """``bad(mode, *flags, **keys)``: the definition of a stdio server that misbehaves in that way."""

    def make(mode: str, *flags: str, **keys: Any) -> Server:
        words = ("-I", "-S", hostile_stdio, mode, "--journal", str(journal.path), *flags)
        keys = {"timeouts": PATIENT, "id": "bad", **keys}
        return Server(transport=StdioSpec(sys.executable, words), **keys)

    return make


@dataclass
class Web:
    """``web(mode, **options)``: the definition of an HTTP server that misbehaves so, and what it saw."""

    base: str
    key: str = field(default_factory=lambda: secrets.token_hex(6))

    def url(self, mode: str, **options: str) -> str:
        return f"{self.base}/{mode}/{self.key}?{urlencode(options)}"

    def __call__(self, mode: str, *, keys: Mapping[str, Any] | None = None, **options: str) -> Server:
        kind = "sse" if options.get("era") == "sse" else "http"
        spec = HttpSpec(self.url(mode, **options), type=kind)
        return Server(**{"id": "bad", "transport": spec, "timeouts": PATIENT, **(keys or {})})

    def seen(self, suffix: str = "") -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.base}/journal/{self.key}{suffix}", timeout=5) as answer:
            return json.load(answer)

    def messages(self, method: str) -> list[dict[str, Any]]:
        """What came in of one method; each with the ``headers`` and ``connection`` it came with."""
        return [entry for entry in self.seen() if entry.get("message", {}).get("method") == method]


@pytest.fixture
def web(hostile_http: Any) -> Web:
    """Bad HTTP servers, under a key of this test's own."""
    return Web(hostile_http.url)


@pytest.fixture
def good(hostile_stdio: str) -> Server:
    """The definition of a server that works."""
    return Server("good", StdioSpec(sys.executable, ("-I", "-S", hostile_stdio, "good")))


@pytest.fixture
def beside(good: Server) -> Callable[..., AbstractAsyncContextManager[ClientManager]]:
    """``async with beside(*servers, **options) as manager``: those servers, with a good one beside them
    that must work all the while."""

    @contextlib.asynccontextmanager
    async def make(*servers: Server, **options: Any) -> AsyncIterator[ClientManager]:
        async with ClientManager([good, *servers], **options) as manager:
            assert await echo(manager) == "before"
            yield manager
            assert await echo(manager, "after") == "after"
            assert manager.status("good").connects == 1

    return make


async def echo(manager: ClientManager, text: str = "before") -> str:
    result = await manager.call("good", "echo", {"text": text})
    return result["content"][0]["text"]


@pytest.fixture
def within() -> Callable[[float], contextlib.AbstractContextManager[None]]:
    """``with within(seconds)``: what is inside takes no longer."""

    @contextlib.contextmanager
    def measure(seconds: float) -> Iterator[None]:
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        assert took < seconds, f"took {took:.2f} s, more than {seconds:g} s"

    return measure


@pytest.fixture
def says() -> Callable[[Status | ServerError, str], None]:
    """``says(status, words)``: its cause is one sentence that has these words."""

    def check(told: Status | ServerError, words: str) -> None:
        cause = told.cause
        assert cause is not None
        assert words in cause, cause
        assert "\n" not in cause
        assert "\r" not in cause
        assert len(cause) < 500
        assert cause.isprintable(), repr(cause)
        if isinstance(told, Status):
            assert told.state in (State.FAILED, State.NEEDS_AUTH, State.IDLE)
        else:
            assert told.server == "bad"

    return check
