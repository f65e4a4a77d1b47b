"""Shared fixtures: a clock that is set by hand, servers, and a source of listings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.manual_clock import ManualClock

from toolyard.types.account import Principal
from toolyard.types.server import HttpSpec, Server
from toolyard.types.tool import RawListing

ROOT = Path(__file__).parent.parent.parent


class Source:
    """Answers fetches: with ``listing``, or with ``error``; while ``gate`` is closed they wait."""

    def __init__(self) -> None:
        self.listing = RawListing()
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.calls: list[tuple[str, str]] = []
        self.cancelled = 0
        self.started = asyncio.Event()

    async def __call__(self, server_id: str, principal: Principal, chat: str | None = None) -> RawListing:
        self.calls.append((server_id, principal.id))
        answer = self.listing
        self.started.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return answer


def make_tool(name: str = "search", **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def make_listing(*names: str, **fields: Any) -> RawListing:
    return RawListing(tools=tuple(make_tool(name) for name in names), **fields)


def make_server(id: str = "repo", **fields: Any) -> Server:
    return Server(id, HttpSpec("http://localhost:4010/mcp"), **fields)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def tool() -> Callable[..., dict[str, Any]]:
    return make_tool


@pytest.fixture
def listing() -> Callable[..., RawListing]:
    return make_listing


@pytest.fixture
def server() -> Callable[..., Server]:
    return make_server
