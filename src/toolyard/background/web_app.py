"""The pages of the background process, on a loopback address, from the first time that they are needed.

Where nobody signs in, every user of the machine could open a loopback address. So these pages are for the
browsers that have opened one of our links, each of which works once. On Linux, they must also run as our own
user: others see the link among the arguments of the browser, and their servers on other ports get the cookie.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
import sys
import time
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.config import load_config, load_settings
from toolyard.config.settings.table import PeopleMode
from toolyard.store.lazy_database import LazyDatabase

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from toolyard.store import Database

__all__ = ["BackgroundWebApp"]

log = logging.getLogger("toolyard.background")

_LOOPBACK_ADDRESS = "127.0.0.1"
_LINK_PREFIX = "/open/"
_COOKIE_NAME = "toolyard_background"
_MAX_UNUSED_LINKS = 1_000
_UNKNOWN_UID = -1
_NOT_IN_PATHS = re.compile(r"[\\\x00-\x20\x7f]")
_REFUSAL = b"These pages are open to the person who runs this Toolyard. Open them with `toolyard open`.\n"


class BackgroundWebApp:
    """The web app of one data directory, started by ``open`` or the first link."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._settings = load_settings(data_dir)
        self._needs_link = self._settings.people_mode is PeopleMode.NONE
        """Whether the local user uses the pages, without a sign-in."""
        self._lazy_database = LazyDatabase(self._settings, data_dir)
        self._database: asyncio.Future[Database] = asyncio.get_running_loop().create_future()
        self._cookie = secrets.token_urlsafe(32)
        self._unused_links: LruCache[str, None] = LruCache(_MAX_UNUSED_LINKS)
        self._open_requests = 0
        self._last_request = 0.0
        self._url = ""
        self._invitation: str | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def idle_since(self) -> float | None:
        """Time of the last request on the monotonic clock; None while one is open, as by a page in a tab."""
        return None if self._open_requests else self._last_request

    # Access of the shared cores.

    async def open_database(self, *, create: bool) -> Database | None:
        """Return the database of the local user; None if there is none. Raises StoreError."""
        if not self._needs_link:
            return None
        database = await self._lazy_database.open_if_exists(create=create)
        if database is not None and not self._database.done():
            self._database.set_result(database)
        return database

    async def wait_for_database(self) -> Database:
        """Return the database of the local user once there is one."""
        return await asyncio.shield(self._database)

    async def make_link(self, path: str) -> str | None:
        """Return a link to a page that works once; None if the local user has no pages.

        Raises ToolyardError or OSError.
        """
        return await self._serve_and_make_link(path) if self._needs_link else None

    # The web app.

    async def open(self) -> str:
        """Return a link to the pages, or an invitation if no admin exists yet. Raises ToolyardError."""
        link = await self._serve_and_make_link("/")
        return self._invitation or link

    async def _serve_and_make_link(self, path: str) -> str:
        if self._task is None or self._task.done():
            self._ready.clear()
            self._task = asyncio.create_task(self._serve())
        waiting = asyncio.create_task(self._ready.wait())
        await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        await self.open_database(create=False)
        self._last_request = time.monotonic()
        if not self._needs_link:
            return f"{self._url}{path}"
        token = secrets.token_urlsafe(24)
        self._unused_links[token] = None
        return f"{self._url}{_LINK_PREFIX}{token}{path}"

    async def _serve(self) -> None:
        from toolyard.web.app import ServeOptions, serve
        from toolyard.web.http_server.socket import CannotListen, open_listener  # loads the web app

        settings = load_settings(self._data_dir)
        configuration = load_config(cwd=self._data_dir, data_dir=self._data_dir)
        try:
            listener = open_listener(_LOOPBACK_ADDRESS, settings.port)
        except CannotListen:
            # The usual port is in use. Links contain the port that was chosen.
            listener = open_listener(_LOOPBACK_ADDRESS, 0)
        self._url = listener.address

        def announce(invitation: str | None) -> None:
            self._invitation = invitation
            log.info("the pages are at %s/", self._url)
            self._ready.set()

        options = ServeOptions(configuration, settings, self._data_dir)
        await serve(options, listener, announce, wrap_app=self._guard, handles_signals=False)

    def _guard(self, app: ASGIApp) -> ASGIApp:
        """Return the app behind the check of links and cookies, with its requests counted."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            self._open_requests += 1
            try:
                if scope["type"] != "http" or not self._needs_link:
                    await app(scope, receive, send)
                elif _is_foreign_client(scope):
                    await _respond(send, 403, [(b"content-type", b"text/plain; charset=utf-8")], _REFUSAL)
                elif scope["path"].startswith(_LINK_PREFIX):
                    await self._follow_link(scope, send)
                elif self._has_cookie(scope):
                    await app(scope, receive, send)
                else:
                    await _respond(send, 403, [(b"content-type", b"text/plain; charset=utf-8")], _REFUSAL)
            finally:
                self._open_requests -= 1
                self._last_request = time.monotonic()

        return guarded

    async def _follow_link(self, scope: Scope, send: Send) -> None:
        token, slash, page = scope["path"].removeprefix(_LINK_PREFIX).partition("/")
        # Unused links have the value None, and the default is not None. GET only: a HEAD request, as link
        # previews send, must not use up the link.
        is_unused = scope["method"] == "GET" and self._unused_links.pop(token, token) is None
        if not is_unused and not self._has_cookie(scope):
            await _respond(send, 403, [(b"content-type", b"text/plain; charset=utf-8")], _REFUSAL)
            return
        # Our own path, and no address of another site such as "//example.org". Browsers read a backslash as a
        # slash, and skip control characters.
        target = "/" if page.startswith("/") or _NOT_IN_PATHS.search(page) else f"{slash}{page}"
        cookie = f"{_COOKIE_NAME}={self._cookie}; Path=/; HttpOnly; SameSite=Lax"
        await _respond(
            send, 303, [(b"location", target.encode("latin-1", "replace")), (b"set-cookie", cookie.encode())]
        )

    def _has_cookie(self, scope: Scope) -> bool:
        text = b"; ".join(value for name, value in scope["headers"] if name == b"cookie")
        try:
            found = SimpleCookie(text.decode("latin-1")).get(_COOKIE_NAME)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._cookie.encode())

    async def close(self) -> None:
        """End the web app, and close the database."""
        if self._task is not None:
            await cancel_tasks([self._task])
        self._database.cancel()
        await self._lazy_database.close()


def _is_foreign_client(scope: Scope) -> bool:
    """Return True if the program that sent a request runs as another user, except root."""
    if scope["client"] is None:  # The connection was reset.
        return True
    return _find_client_uid(scope["client"], scope["server"]) not in (None, 0, os.getuid())


def _find_client_uid(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user of a connection from this machine, as the Linux kernel knows it; None where no such
    table of connections exists.

    For a connection that its program has closed, the kernel shows the user id 0 and no inode, and soon
    nothing. That program may run as any user, so the result is an id that no user has.
    """
    ends = [f"{_format_kernel_address(host)}:{port:04X}" for host, port in (client, server)]
    uid = None
    for name, prefix in (("tcp", ""), ("tcp6", "0000000000000000FFFF0000")):
        row = [f"{prefix}{end}" for end in ends]
        with suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as file:
            uid = _UNKNOWN_UID
            for line in file:
                if (fields := line.split())[1:3] == row and fields[9] != "0":
                    return int(fields[7])
    return uid


def _format_kernel_address(host: str) -> str:
    address = socket.inet_aton(host)
    return (address[::-1] if sys.byteorder == "little" else address).hex().upper()


async def _respond(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
    safe = [(b"cache-control", b"no-store"), (b"referrer-policy", b"no-referrer")]
    size = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *safe, size]})
    await send({"type": "http.response.body", "body": body})
