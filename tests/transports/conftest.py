"""A receiver that writes everything down, and the ways to the bad servers."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from toolyard.errors import ServerError
from toolyard.net import OutboundHttp
from toolyard.protocol.framing import Line
from toolyard.transports.stdio.supervisor import ProcessSupervisor
from toolyard.types.server import StdioSpec

if TYPE_CHECKING:
    from tests.conftest import ListeningProgram


@pytest.fixture(autouse=True)
def nothing_is_left(leaks: None) -> None:
    """Every test of this room ends with the tasks, descriptors and processes that it began with."""


class RecordingReceiver:
    """The other side of a transport."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.losses: list[ServerError] = []
        self.stray_bytes = 0
        self.something = asyncio.Event()

    def should_decode(self, undecoded_line: Line) -> bool:
        return True

    def on_message(self, message: object, size: int = 0) -> None:
        if message is not None:
            self.messages.append(message)
        self.something.set()

    def on_stray_lines(self, number: int, size: int, kind: str = "line") -> None:
        self.stray_bytes += size

    def on_lost(self, error: ServerError) -> None:
        self.losses.append(error)
        self.something.set()

    async def next(self, seconds: float = 30.0) -> None:
        """Wait for a message or the loss."""
        await asyncio.wait_for(self.something.wait(), seconds)
        self.something.clear()


@pytest.fixture
async def recorder() -> RecordingReceiver:
    return RecordingReceiver()


@pytest.fixture
async def process_supervisor() -> AsyncIterator[ProcessSupervisor]:
    """A process supervisor, closed at the end."""
    process_supervisor = ProcessSupervisor()
    yield process_supervisor
    await process_supervisor.close()


@pytest.fixture
async def net() -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp()
    yield net
    await net.close()


@pytest.fixture
def spec(hostile_stdio: str) -> Callable[..., StdioSpec]:
    """``spec(mode, *flags)``: a stdio server that misbehaves in that way."""

    def make(mode: str, *flags: str) -> StdioSpec:
        return StdioSpec(sys.executable, ("-I", "-S", hostile_stdio, mode, *flags))

    return make


@pytest.fixture
def key() -> str:
    """Under which the bad HTTP servers of this test write down what they see."""
    return secrets.token_hex(6)


@pytest.fixture
def url(hostile_http: ListeningProgram, key: str) -> Callable[..., str]:
    """``url(mode, era="legacy")``: the address of an HTTP server that misbehaves in that way."""

    def make(mode: str, **options: str) -> str:
        return f"{hostile_http.url}/{mode}/{key}?{urlencode(options)}"

    return make


@pytest.fixture
def list_requests(hostile_http: ListeningProgram, key: str) -> Callable[[], list[dict[str, Any]]]:
    """What those servers were sent."""

    def read() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{hostile_http.url}/journal/{key}", timeout=30) as answer:
            return json.load(answer)

    return read
