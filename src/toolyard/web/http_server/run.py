"""Run loop of the HTTP server, with a graceful shutdown in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Generator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import logger as uvicorn_log

from toolyard.web.http_server.connection_limits import ConnectionLimits
from toolyard.web.http_server.http_protocol import BoundedHttpProtocol
from toolyard.web.http_server.socket import Listener

__all__ = ["HttpServer", "run_server"]

log = logging.getLogger("toolyard.web")

_DRAIN_SECONDS = 5.0
"""Time that open requests have to complete on shutdown, in seconds."""
_FINAL_RESPONSE_SECONDS = 1.0
"""Time to send the responses of requests that were ended, in seconds."""
_KEEP_ALIVE_SECONDS = 75
"""Keep-alive timeout in seconds. Longer than the minute for which proxies typically reuse connections."""


class HttpServer:
    """Uvicorn server with a shutdown in phases, controlled by its caller."""

    def __init__(
        self,
        app: ASGIApp,
        listener: Listener,
        limits: ConnectionLimits | None = None,
        *,
        protocol: type[BoundedHttpProtocol] = BoundedHttpProtocol,
    ) -> None:
        self._listener = listener
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                interface="asgi3",
                http=_bind_limits(protocol, limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # The request guard resolves proxies itself and needs the address of the socket's peer.
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )
        self._stop_requested = asyncio.Event()
        self._hurry_requested = asyncio.Event()

    async def start(self) -> None:
        """Begin to accept requests."""
        # The first half of uvicorn's own serve(), which would also install signal handlers and shut down in
        # an order that leaves requests waiting for connections that we have yet to close.
        server = self._server
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[self._listener.socket])

    def stop(self) -> None:
        """Begin to stop. A second call skips the remaining waits."""
        if self._stop_requested.is_set():
            self._hurry_requested.set()
        self._stop_requested.set()
        self._server.should_exit = True

    async def run_until_stop(self) -> None:
        """Run uvicorn's periodic work until ``stop`` is called."""
        main_loop = asyncio.create_task(self._server.main_loop())
        try:
            await self._stop_requested.wait()
        finally:
            main_loop.cancel()
            await asyncio.gather(main_loop, return_exceptions=True)

    async def drain(self) -> None:
        """Stop accepting requests, and wait a few seconds for the open ones to complete."""
        state = self._server.server_state
        for server in self._server.servers:
            server.close()
        self._listener.close()
        for connection in list(state.connections):
            connection.shutdown()
        await self._wait_for_open_requests(_DRAIN_SECONDS)
        if state.connections:
            log.warning("%d requests did not complete in time", len(state.connections))

    async def wait_for_shutdown_work(self, work: Awaitable[None]) -> None:
        """Wait for shutdown work, but only briefly after a second ``stop``. Raises its errors."""
        task, hurry_task = asyncio.ensure_future(work), asyncio.ensure_future(self._hurry_requested.wait())
        await asyncio.wait((task, hurry_task), return_when=asyncio.FIRST_COMPLETED)
        hurry_task.cancel()
        if not task.done():
            await asyncio.wait((task,), timeout=_FINAL_RESPONSE_SECONDS)
        if task.done():
            task.result()

    async def cancel_open_requests(self) -> None:
        """Abort the connections and cancel the tasks of requests that are still open."""
        state = self._server.server_state
        await self._wait_for_open_requests(_FINAL_RESPONSE_SECONDS)
        for connection in list(state.connections):
            connection.transport.abort()
        # Let each request see the disconnect before it is cancelled, so that it sends nothing more.
        await asyncio.sleep(0)
        uvicorn_log.addFilter(_is_not_cancellation)
        for task in list(state.tasks):
            task.cancel()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_FINAL_RESPONSE_SECONDS)
        uvicorn_log.removeFilter(_is_not_cancellation)

    async def _wait_for_open_requests(self, seconds: float) -> None:
        """Return when no request is open, after a second ``stop``, or after the given time."""
        # Uvicorn offers no event for the last connection, so its set of connections is polled.
        state = self._server.server_state
        deadline = asyncio.get_running_loop().time() + seconds
        while state.connections and asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._hurry_requested.wait()
                return


async def run_server(
    app: ASGIApp,
    listener: Listener,
    *,
    on_listening: Callable[[], None],
    on_stopping: Callable[[], None],
    end_work: Callable[[], Awaitable[None]],
    limits: ConnectionLimits | None = None,
    handles_signals: bool = True,
) -> None:
    """Serve until SIGTERM or SIGINT. A second signal skips the remaining waits.

    Unless ``handles_signals``, the process has handlers of its own, and this is cancelled.

    ``on_listening`` is called once requests are accepted, ``on_stopping`` when shutdown begins. ``end_work``
    ends the work that open requests depend on, so that long-running requests still get a response.
    """
    server = HttpServer(app, listener, limits)
    with _install_signal_handlers(server.stop) if handles_signals else contextlib.nullcontext():
        await server.start()
        on_listening()
        await server.run_until_stop()
        # Streams end first, then requests have time to complete. After that the work that the remaining ones
        # depend on is ended, so that they can still respond, and finally the rest is cancelled.
        on_stopping()
        await server.drain()
        await server.wait_for_shutdown_work(end_work())
        await server.cancel_open_requests()


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """Filter log records: the cancellation of a request during shutdown is expected, and not an error."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _bind_limits(
    protocol: type[BoundedHttpProtocol], limits: ConnectionLimits | None
) -> type[BoundedHttpProtocol]:
    """Return a protocol class bound to the limits: uvicorn instantiates it without extra arguments."""
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
