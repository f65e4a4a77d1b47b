"""Heads of requests: not for ever on their way, and not without end. The server would wait for both."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_LIMIT", "HEAD_SECONDS", "PatientProtocol"]

HEAD_SECONDS = 20.0
"""From the connection, or from the first byte of a later request, to the end of its head."""
HEAD_LIMIT = 64 * 1024
"""Bytes of a request line and its headers."""
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)


class PatientProtocol(HttpToolsProtocol):
    """Uvicorn's, with a clock and a limit for the head of each request. Bodies have theirs in the guard."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._waiting: asyncio.TimerHandle | None = None
        self._arrived = 0
        self._in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connected, and has something to say."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """They left."""
        self._heard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """More of a head, of a body, or of both."""
        begins = not self._in_head and (self.cycle is None or self.cycle.response_complete)  # pyright: ignore[reportUnnecessaryComparison]
        if begins:
            self._in_head, self._arrived = True, 0
        self._arrived += len(data)
        super().data_received(_as_it_is(data) if self._in_head else data)
        if not self._in_head:
            return
        # Most heads come whole: only one that did not needs a clock.
        if begins:
            self._wait()
        if self._arrived > HEAD_LIMIT:
            self._give_up()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        self._heard()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.head_seconds, self._give_up)

    def _heard(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._heard()
        # Nobody who means well is still there to read an answer.
        self.transport.close()


def _as_it_is(data: bytes) -> bytes:
    """The head of a request that offers to speak something else, as Java's client offers HTTP/2, without the
    offer: we take none, and the parser would leave the body to that other protocol."""
    if _UPGRADE.search(data) is None:
        return data
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"\r\nX-Upgrade:", head) + end + body
