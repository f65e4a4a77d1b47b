"""Connection pool of one origin, with a short keep-alive."""

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
from toolyard.types.version import USER_AGENT

__all__ = ["OriginPool"]


class OriginPool:
    """Connections to one scheme, host and port. ``get_session`` returns the session that opens them."""

    def __init__(
        self,
        url: URL,
        get_session: Callable[[], aiohttp.ClientSession],
        tls: Any,
        proxy: URL | None,
        keep_alive_seconds: float,
    ) -> None:
        self.keep_alive_seconds = keep_alive_seconds
        """Seconds for which an idle connection is kept."""
        self._url = url
        self._get_session = get_session
        self._tls = tls
        self._proxy = proxy
        self._default_headers: CIMultiDict[str] = CIMultiDict()
        # Weak references: a connection belongs to its response or to the idle list, and must not stay here
        # after both have dropped it.
        self._connections: WeakSet[Http1Connection] = WeakSet()
        self._idle_connections: list[Http1Connection] = []
        self._expiry_timer: asyncio.TimerHandle | None = None

    @property
    def idle_count(self) -> int:
        """Number of connections that wait for a request."""
        return len(self._idle_connections)

    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse:
        """Send a request and return its response as soon as the head has arrived.

        Raise aiohttp.ClientError, OSError or ValueError. GET and DELETE, which are idempotent, are repeated
        if a kept-alive connection turns out to be closed; other methods may have been executed already.
        """
        # In a loop, since the server may have closed all idle connections at once, as when it restarts.
        while (http1 := self._take_idle_connection()) is not None:
            try:
                return await self._request_on(http1, method, url, headers, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if method not in ("GET", "DELETE"):
                    raise
        return await self._request_on(await self._open_connection(), method, url, headers, body)

    def close(self) -> None:
        """Close all connections. Pending requests fail."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        self._idle_connections = []
        for http1 in list(self._connections):
            http1.abort()

    async def _request_on(
        self, http1: Http1Connection, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpResponse:
        try:
            head = self._encode_head(method, url, headers, body)
        except ValueError:
            http1.close()
            raise
        return await http1.send_request(head, body)

    def _encode_head(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
        merged = self._default_headers.copy()
        merged.update(headers)
        if body is not None:
            merged["Content-Length"] = str(len(body))
        target = url.raw_path_qs
        if self._proxy is not None and url.scheme == "http":
            # A plain HTTP proxy needs the absolute form of the request target (RFC 9112, section 3.2.2).
            target = str(url.with_user(None).with_fragment(None))
        lines = [f"{name}: {value}\r\n" for name, value in merged.items()]
        text = f"{method} {target} HTTP/1.1\r\n{''.join(lines)}\r\n"
        # Protection against request smuggling: a line break in a header value or in the target would start
        # another header or request. One count over the whole head is cheaper than a check per value.
        expected_breaks = len(lines) + 2
        if text.count("\n") != expected_breaks or text.count("\r") != expected_breaks or "\0" in text:
            raise ValueError("a header contains a line break")
        return text.encode()

    async def _open_connection(self) -> Http1Connection:
        if self._url.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(self._url)
        session = self._get_session()
        assert session.connector is not None
        # aiohttp opens the connection, which covers DNS, happy eyeballs, the guard, TLS and proxies. The
        # request itself is never sent; it only describes the connection.
        request = aiohttp.ClientRequest(
            "GET",
            self._url,
            loop=asyncio.get_running_loop(),
            session=session,
            ssl=self._tls,
            proxy=self._proxy,
            headers={"Accept-Encoding": "gzip", "User-Agent": USER_AGENT},
        )
        connection = await session.connector.connect(request, [], session.timeout)
        # Host, and credentials for a proxy, as aiohttp would send them.
        self._default_headers = request.headers
        http1 = Http1Connection(connection, self._add_idle_connection)
        self._connections.add(http1)
        return http1

    def _take_idle_connection(self) -> Http1Connection | None:
        """Return the most recently used idle connection that is still usable, so that surplus ones expire."""
        oldest = asyncio.get_running_loop().time() - self.keep_alive_seconds
        while self._idle_connections:
            http1 = self._idle_connections.pop()
            if http1.idle_since > oldest and http1.is_reusable:
                return http1
            http1.close()
        return None

    def _add_idle_connection(self, http1: Http1Connection) -> None:
        loop = asyncio.get_running_loop()
        http1.idle_since = loop.time()
        self._idle_connections.append(http1)
        if self._expiry_timer is None:
            self._expiry_timer = loop.call_later(self.keep_alive_seconds, self._close_expired)

    def _close_expired(self) -> None:
        self._expiry_timer = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self.keep_alive_seconds
        idle, self._idle_connections = self._idle_connections, []
        for http1 in idle:
            if http1.is_open and http1.idle_since > oldest:
                self._idle_connections.append(http1)
            else:
                http1.close()
        if self._idle_connections:
            self._expiry_timer = loop.call_later(self.keep_alive_seconds, self._close_expired)
