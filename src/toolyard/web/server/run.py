"""Answering requests, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Generator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard.web.server.connection_limits import ConnectionLimits
from toolyard.web.server.header_timeout import BoundedHttpProtocol
from toolyard.web.server.socket import Listener

__all__ = ["HttpServer", "run_server"]

log = logging.getLogger("toolyard.web")

_DRAIN_SECONDS = 5.0
"""Seconds that requests have to end by themselves."""
_FINAL_RESPONSE_SECONDS = 1.0
"""Seconds for the answers of those that were ended."""
_KEEP_ALIVE_SECONDS = 75
"""Seconds. Longer than the minute for which proxies keep their connections to us."""


class HttpServer:
    """A server that answers, until ``stop`` is called."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        limits: ConnectionLimits | None = None,
        *,
        protocol: type[BoundedHttpProtocol] = BoundedHttpProtocol,
    ) -> None:
        self._app = app
        self._listener = listener
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._handle_request,
                interface="asgi3",
                http=_bind_limits(protocol, limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # Who is behind a proxy is decided where people are told apart, by the socket's peer.
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )
        self._is_aborting = False
        self._stop_requested = asyncio.Event()
        self._hurry_requested = asyncio.Event()

    async def start(self) -> None:
        """Answer requests from now on."""
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[self._listener.socket])

    def stop(self) -> None:
        """Begin to stop; the second time, hurry."""
        if self._stop_requested.is_set():
            self._hurry_requested.set()
        self._stop_requested.set()
        self._server.should_exit = True

    async def wait_until_stopped(self) -> None:
        """Keep the server's clock going, until ``stop``."""
        ticking = asyncio.create_task(self._server.main_loop())
        try:
            await self._stop_requested.wait()
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)

    async def drain(self) -> None:
        """Take no more requests, and give the open ones a few seconds to end."""
        state = self._server.server_state
        for server in self._server.servers:
            server.close()
        self._listener.close()
        for connection in list(state.connections):
            connection.shutdown()
        await self._wait_for_open_requests(_DRAIN_SECONDS)
        if state.connections:
            log.warning("requests that did not end in time: %d", len(state.connections))

    async def end(self, work: Awaitable[None]) -> None:
        """Wait for work that ends things; not for long once somebody hurries."""
        task, hurry = asyncio.ensure_future(work), asyncio.ensure_future(self._hurry_requested.wait())
        await asyncio.wait((task, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not task.done():
            await asyncio.wait((task,), timeout=_FINAL_RESPONSE_SECONDS)
        if task.done():
            task.result()

    async def cancel_open_requests(self) -> None:
        """End the requests that are still open, whatever they wait for."""
        state = self._server.server_state
        await self._wait_for_open_requests(_FINAL_RESPONSE_SECONDS)
        self._is_aborting = True
        for connection in list(state.connections):
            connection.transport.abort()
        # Each hears first that its caller is gone, and says nothing more.
        await asyncio.sleep(0)
        for task in list(state.tasks):
            task.cancel()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_FINAL_RESPONSE_SECONDS)

    async def _handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The top of a request. One that we end is no failure, and no trace of it is worth a line."""
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._is_aborting:
                raise

    async def _wait_for_open_requests(self, seconds: float) -> None:
        """Until no request is open, somebody hurries, or the time is over."""
        state = self._server.server_state
        deadline = asyncio.get_running_loop().time() + seconds
        while state.connections and asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry_requested.wait(), 0.02)
                return


async def run_server(
    app: ASGIApp,
    listener: Listener,
    *,
    on_listening: Callable[[], None],
    on_stopping: Callable[[], None],
    end_work: Callable[[], Awaitable[None]],
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; a second one hurries.

    ``listening`` is called once requests are answered, ``stopping`` once no more shall come. ``end_work``
    ends what open requests wait for, so that even those get an answer that would not end by themselves.
    """
    running = HttpServer(app, listener, limits)
    with _install_signal_handlers(running.stop):
        await running.start()
        on_listening()
        await running.wait_until_stopped()
        on_stopping()
        await running.drain()
        await running.end(end_work())
        await running.cancel_open_requests()


def _bind_limits(
    protocol: type[BoundedHttpProtocol], limits: ConnectionLimits | None
) -> type[BoundedHttpProtocol]:
    """Return the protocol for one server: uvicorn makes an object of it for each connection, without more."""
    return type(protocol.__name__, (protocol,), {"limits": limits})


@contextlib.contextmanager
def _install_signal_handlers(stop: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
