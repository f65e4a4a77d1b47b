"""Requests to one origin, on connections that are kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from toolyard.net.http1.connection import Line
from toolyard.net.http1.response import Answer

__all__ = ["KEEP_ALIVE", "Origin"]

KEEP_ALIVE = 4.0
"""Seconds. Common servers close idle connections after five; closing first means that a request
is never written into a connection that the other side is just closing, whose outcome nobody knows."""


class Origin:
    """One scheme, host and port, and its connections. ``session`` gives what makes them."""

    def __init__(
        self, url: URL, session: Callable[[], aiohttp.ClientSession], tls: Any, proxy: URL | None
    ) -> None:
        self._url = url
        self._session = session
        self._tls = tls
        self._proxy = proxy
        self._says: CIMultiDict[str] = CIMultiDict()
        self._lines: WeakSet[Line] = WeakSet()
        self._free: list[Line] = []
        self._sweeping: asyncio.TimerHandle | None = None

    async def ask(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> Answer:
        """Send a request, and give what comes back once its head is there.

        Raises aiohttp.ClientError, OSError and ValueError. What may be done twice is done again where a kept
        connection turns out to be closed.
        """
        while (line := self._kept()) is not None:
            try:
                return await self._ask_on(line, method, url, headers, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if method not in ("GET", "DELETE"):
                    raise
        return await self._ask_on(await self._dial(), method, url, headers, body)

    def close(self) -> None:
        """Close all connections. Whoever waits for an answer is told."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._free = []
        for line in list(self._lines):
            line.abort()

    async def _ask_on(
        self, line: Line, method: str, url: URL, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        try:
            head = self._head(method, url, headers, body)
        except ValueError:
            line.close()
            raise
        return await line.ask(head, body)

    def _head(self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None) -> bytes:
        said = self._says.copy()
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

    async def _dial(self) -> Line:
        if self._url.scheme not in ("http", "https"):
            raise aiohttp.NonHttpUrlClientError(self._url)
        session = self._session()
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
        self._says = asking.headers
        line = Line(connection, self._keep)
        self._lines.add(line)
        return line

    def _kept(self) -> Line | None:
        """A connection that waits and is fresh enough; the one that was used last, so that others can go."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE
        while self._free:
            line = self._free.pop()
            if line.free_since > oldest and line.is_silent:
                return line
            line.close()
        return None

    def _keep(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        line.free_since = loop.time()
        self._free.append(line)
        if self._sweeping is None:
            self._sweeping = loop.call_later(KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEP_ALIVE
        kept, self._free = self._free, []
        for line in kept:
            if line.is_open and line.free_since > oldest:
                self._free.append(line)
            else:
                line.close()
        if self._free:
            self._sweeping = loop.call_later(KEEP_ALIVE, self._sweep)
