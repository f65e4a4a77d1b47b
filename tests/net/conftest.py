from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from tests.net.raw_server import sockets
from yarl import URL

from toolyard.net import OutboundHttp


@dataclass
class LoopbackHttpServer:
    """A real HTTP server on 127.0.0.1, and what it was asked."""

    url: URL = field(default_factory=URL)
    seen: list[web.BaseRequest] = field(default_factory=list)

    def at(self, host: str, scheme: str = "http") -> URL:
        """The address of this server under another name of its host."""
        return URL(f"{scheme}://{host}:{self.url.port}/")


async def hello(request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def run_http_server(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = hello,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[LoopbackHttpServer]:
    server = LoopbackHttpServer()

    async def noting(request: web.BaseRequest) -> web.StreamResponse:
        server.seen.append(request)
        return await handler(request)

    runner = web.ServerRunner(web.Server(noting), shutdown_timeout=1)
    await runner.setup()
    try:
        services = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await services.start()
        server.url = URL.build(
            scheme="https" if tls else "http", host="127.0.0.1", port=runner.addresses[0][1], path="/"
        )
        yield server
    finally:
        await runner.cleanup()


@pytest.fixture
def serve() -> Callable[..., object]:
    """Serves with a handler, and a TLS context where there is one; an asynchronous context manager."""
    return run_http_server


@pytest.fixture
async def server() -> AsyncIterator[LoopbackHttpServer]:
    async with run_http_server() as http_server:
        yield http_server


@pytest.fixture
async def net() -> AsyncIterator[OutboundHttp]:
    net = OutboundHttp()
    yield net
    await net.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever proxies the machine of the test has are not those of the test."""
    for name in ("http", "https", "all", "no", "ws", "wss", "ftp"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Fails the test that leaves a socket or a task, or an exception that nobody saw. Ask for it first."""
    loop, complaints = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    before, tasks = sockets(), asyncio.all_tasks()
    yield
    deadline = time.monotonic() + 30
    while True:
        more, going = sockets() - before, asyncio.all_tasks() - tasks - {asyncio.current_task()}
        if (more <= 0 and not going) or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.01)
    loop.set_exception_handler(None)
    assert more <= 0, f"{more} sockets are left"
    assert not going, f"tasks are left: {going}"
    assert not complaints, f"the event loop complained: {complaints}"
