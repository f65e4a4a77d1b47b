"""Event streams to HTTP clients: bounded while nobody reads, alive while nothing happens, resumable where a
client may come back."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from toolyard.protocol.codec import encode
from toolyard.protocol.pending import Message

__all__ = ["Send", "Stream"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_WAITING = 1000
"""Messages that wait for a slow reader. Beyond them notifications are dropped, and nothing else."""
_KEPT = 256
"""Messages that a client can have again which comes back."""
_ALIVE = 15.0
_RETRY = 1000
"""Milliseconds after which a client should come back whose stream ended."""
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Stream:
    """Messages to one client, in their order. ``name`` is given where the client may come back for them."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._events: deque[tuple[int, bytes]] = deque()
        self._last = 0
        self._sent = 0
        self._ended = False
        self._writers = 0
        self._reading = 0
        self._more = asyncio.Event()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever put in."""
        return self._last == 0

    @property
    def begun(self) -> bool:
        """Whether anything was put in, or a client reads it: the answer belongs here then."""
        return self._last > 0 or self._writers > 0

    @property
    def is_read(self) -> bool:
        """Whether a client reads it now."""
        return self._reading > 0

    def put(self, message: Message) -> None:
        """Send a message as soon as the reader takes it. Never waits."""
        if self._ended:
            return
        waiting = self._last - self._sent
        if waiting >= _WAITING and "id" not in message:
            return
        self._last += 1
        self._events.append((self._last, encode(message)))
        while len(self._events) > _KEPT and self._events[0][0] <= self._sent:
            self._events.popleft()
        self._more.set()

    def end(self) -> None:
        """Nothing follows what was put in."""
        self._ended = True
        self._more.set()

    def send_away(self) -> None:
        """Whoever reads it gets nothing more; somebody else may."""
        self._writers += 1
        self._more.set()

    async def more(self) -> None:
        """Wait for something new, or the end."""
        await self._more.wait()

    async def write(
        self, send: Send, *, after: int | None = None, headers: list[tuple[bytes, bytes]] | None = None
    ) -> bool:
        """Send everything to an HTTP client, until the end; for one that comes back, what came ``after``.
        Whoever read it before gets nothing more: each message goes one way only. Whether this one got it to
        the end."""
        self._writers += 1
        self._reading += 1
        self._more.set()
        try:
            return await self._write(send, self._writers, after, headers or [])
        finally:
            self._reading -= 1

    async def _write(
        self, send: Send, writer: int, after: int | None, headers: list[tuple[bytes, bytes]]
    ) -> bool:
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *headers]})
        if self.name is not None and after is None:
            # A client that knows an id from the start can come back whenever the stream breaks.
            prime = f"id: {self.name}/0\nretry: {_RETRY}\ndata:\n\n".encode()
            await send({"type": "http.response.body", "body": prime, "more_body": True})
        place = self._sent if after is None else after
        while writer == self._writers:
            self._more.clear()
            events = [(number, data) for number, data in self._events if number > place]
            if events:
                place = events[-1][0]
                self._sent = max(self._sent, place)
                body = b"".join(self._event(number, data) for number, data in events)
                if self.name is None:
                    self._events.clear()
                await send({"type": "http.response.body", "body": body, "more_body": True})
            elif self._ended:
                break
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), _ALIVE)
                    continue
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return writer == self._writers

    def _event(self, number: int, data: bytes) -> bytes:
        # Encoded JSON has no line breaks.
        if self.name is None:
            return b"data: %b\n\n" % data
        return b"id: %b/%d\ndata: %b\n\n" % (self.name.encode(), number, data)
