"""Requests to one origin, on connections that are kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from toolyard.net.http1.connection import Http1Connection
from toolyard.net.http1.response import HttpResponse

__all__ = ["KEEP_ALIVE_SECONDS", "OriginPool"]

KEEP_ALIVE_SECONDS = 4.0
"""Seconds. Common servers close idle connections after five; closing first means that a request
is never written into a connection that the other side is just closing, whose outcome nobody knows."""


class OriginPool:
    """One scheme, host and port, and its connections. ``session`` gives what makes them."""

    def __init__(
        self, url: URL, get_session: Callable[[], aiohttp.ClientSession], tls: Any, proxy: URL | None
    ) -> None:
        self._url = url
        self._get_session = get_session
        self._tls = tls
        self._proxy = proxy
        self._default_headers: CIMultiDict[str] = CIMultiDict()
        self._connections: WeakSet[Http1Connection] = WeakSet()
        self._idle_connections: list[Http1Connection] = []
        self._expiry_timer: asyncio.TimerHandle | None = None

    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request, and give what comes back once its head is there.

        Raises aiohttp.ClientError, OSError and ValueError. What may be done twice is done again where a kept
        connection turns out to be closed.
        """
        while (line := self._take_idle_connection()) is not None:
            try:
                return await self._request_on(line, method, url, headers, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if method not in ("GET", "DELETE"):
                    raise
        return await self._request_on(await self._open_connection(), method, url, headers, body)

    def close(self) -> None:
        """Close all connections. Whoever waits for an answer is told."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        self._idle_connections = []
        for line in list(self._connections):
            line.abort()

    async def _request_on(
        self, line: Http1Connection, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        try:
            head = self._encode_head(method, url, headers, body)
        except ValueError:
            line.close()
            raise
        return await line.send_request(head, body)

    def _encode_head(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
        said = self._default_headers.copy()
        said.update(headers)
        if body is not None:
            said["Content-Length"] = str(len(body))
        where = url.raw_path_qs
        if self._proxy is not None and url.scheme == "http":
            where = str(url.with_user(None).with_fragment(None))
        lines = [f"{name}: {value}\r\n" for name, value in said.items()]
        text = f"{method} {where} HTTP/1.1\r\n{''.join(lines)}\r\n"
        breaks = len(lines) + 2
        if text.count("\n") != breaks or text.count("\r") != breaks or "\0" in text:
            raise ValueError("a header of it has a line break")
        return text.encode()

    async def _open_connection(self) -> Http1Connection:
        if self._url.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(self._url)
        session = self._get_session()
        assert session.connector is not None
        asking = aiohttp.ClientRequest(
            "GET",
            self._url,
            loop=asyncio.get_running_loop(),
            session=session,
            ssl=self._tls,
            proxy=self._proxy,
            headers={"Accept-Encoding": "gzip"},
        )
        connection = await session.connector.connect(asking, [], session.timeout)
        # With what aiohttp says on every connection: the host, who we are, and to whom a proxy shall listen.
        self._default_headers = asking.headers
        line = Http1Connection(connection, self._add_idle_connection)
        self._connections.add(line)
        return line

    def _take_idle_connection(self) -> Http1Connection | None:
        """A connection that waits and is fresh enough; the one that was used last, so that others can go."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_SECONDS
        while self._idle_connections:
            line = self._idle_connections.pop()
            if line.idle_since > oldest and line.is_reusable:
                return line
            line.close()
        return None

    def _add_idle_connection(self, line: Http1Connection) -> None:
        loop = asyncio.get_running_loop()
        line.idle_since = loop.time()
        self._idle_connections.append(line)
        if self._expiry_timer is None:
            self._expiry_timer = loop.call_later(KEEP_ALIVE_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        self._expiry_timer = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEP_ALIVE_SECONDS
        kept, self._idle_connections = self._idle_connections, []
        for line in kept:
            if line.is_open and line.idle_since > oldest:
                self._idle_connections.append(line)
            else:
                line.close()
        if self._idle_connections:
            self._expiry_timer = loop.call_later(KEEP_ALIVE_SECONDS, self._close_expired)
