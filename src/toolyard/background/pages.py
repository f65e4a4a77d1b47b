"""The pages of the background process, on a loopback address, from the first time that they are needed."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from toolyard.concurrency.tasks import cancel_tasks
from toolyard.config import load_config, load_settings
from toolyard.web.server.socket import CannotListen, open_listener
from toolyard.web.server.startup import ServeOptions, serve

__all__ = ["Pages"]

log = logging.getLogger("toolyard.background")

_LOOPBACK_ADDRESS = "127.0.0.1"


class Pages:
    """The web app of one data directory, started by ``open``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._open_requests = 0
        self._last_request = time.monotonic()
        self._url = ""
        self._invitation: str | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def idle_since(self) -> float | None:
        """Time of the last request on the monotonic clock; None while one is open, as by a page in a tab."""
        return None if self._open_requests else self._last_request

    async def open(self) -> str:
        """Return the address of the pages, or an invitation if no admin exists yet. Raises ToolyardError."""
        if self._task is None or self._task.done():
            self._ready.clear()
            self._task = asyncio.create_task(self._serve())
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        self._last_request = time.monotonic()
        return self._invitation or f"{self._url}/"

    async def _serve(self) -> None:
        settings = load_settings(self._data_dir)
        configuration = load_config(cwd=self._data_dir, data_dir=self._data_dir)
        try:
            listener = open_listener(_LOOPBACK_ADDRESS, settings.port)
        except CannotListen:
            listener = open_listener(_LOOPBACK_ADDRESS, 0)
        self._url = listener.address

        def announce(invitation: str | None) -> None:
            self._invitation = invitation
            log.info("the pages are at %s/", self._url)
            self._ready.set()

        options = ServeOptions(configuration, settings, self._data_dir)
        await serve(options, listener, announce, wrap_app=self._count_requests, handles_signals=False)

    def _count_requests(self, app: ASGIApp) -> ASGIApp:
        async def count_requests(scope: Scope, receive: Receive, send: Send) -> None:
            self._open_requests += 1
            try:
                await app(scope, receive, send)
            finally:
                self._open_requests -= 1
                self._last_request = time.monotonic()

        return count_requests

    async def close(self) -> None:
        """End the web app."""
        if self._task is not None:
            await cancel_tasks([self._task])
