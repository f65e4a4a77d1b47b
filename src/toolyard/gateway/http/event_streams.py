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

__all__ = ["EventStream", "Send"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_UNSENT_MESSAGES = 1000
"""Messages that wait for a slow reader. Beyond them notifications are dropped, and nothing else."""
_MAX_REPLAY_MESSAGES = 256
"""Messages that a client can have again which comes back."""
_KEEPALIVE_SECONDS = 15.0
_RETRY_MILLISECONDS = 1000
"""Milliseconds after which a client should come back whose stream ended."""
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Messages to one client, in their order. ``name`` is given where the client may come back for them."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._events: deque[tuple[int, bytes]] = deque()
        self._last_number = 0
        self._sent_number = 0
        self._is_ended = False
        self._writer_number = 0
        self._reader_count = 0
        self._wakeup = asyncio.Event()

    @property
    def empty(self) -> bool:
        """Whether nothing was ever put in."""
        return self._last_number == 0

    @property
    def has_started(self) -> bool:
        """Whether anything was put in, or a client reads it: the answer belongs here then."""
        return self._last_number > 0 or self._writer_number > 0

    @property
    def has_reader(self) -> bool:
        """Whether a client reads it now."""
        return self._reader_count > 0

    def put(self, message: Message) -> None:
        """Send a message as soon as the reader takes it. Never waits."""
        if self._is_ended:
            return
        waiting = self._last_number - self._sent_number
        if waiting >= _MAX_UNSENT_MESSAGES and "id" not in message:
            return
        self._last_number += 1
        self._events.append((self._last_number, encode(message)))
        while len(self._events) > _MAX_REPLAY_MESSAGES and self._events[0][0] <= self._sent_number:
            self._events.popleft()
        self._wakeup.set()

    def end(self) -> None:
        """Nothing follows what was put in."""
        self._is_ended = True
        self._wakeup.set()

    def disconnect_reader(self) -> None:
        """Whoever reads it gets nothing more; somebody else may."""
        self._writer_number += 1
        self._wakeup.set()

    async def more(self) -> None:
        """Wait for something new, or the end."""
        await self._wakeup.wait()

    async def write_to(
        self, send: Send, *, after: int | None = None, headers: list[tuple[bytes, bytes]] | None = None
    ) -> bool:
        """Send everything to an HTTP client, until the end; for one that comes back, what came ``after``.
        Whoever read it before gets nothing more: each message goes one way only. Whether this one got it to
        the end."""
        self._writer_number += 1
        self._reader_count += 1
        self._wakeup.set()
        try:
            return await self._write_events(send, self._writer_number, after, headers or [])
        finally:
            self._reader_count -= 1

    async def _write_events(
        self, send: Send, writer: int, after: int | None, headers: list[tuple[bytes, bytes]]
    ) -> bool:
        await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, *headers]})
        if self.name is not None and after is None:
            # A client that knows an id from the start can come back whenever the stream breaks.
            prime = f"id: {self.name}/0\nretry: {_RETRY_MILLISECONDS}\ndata:\n\n".encode()
            await send({"type": "http.response.body", "body": prime, "more_body": True})
        place = self._sent_number if after is None else after
        while writer == self._writer_number:
            self._wakeup.clear()
            events = [(number, data) for number, data in self._events if number > place]
            if events:
                place = events[-1][0]
                self._sent_number = max(self._sent_number, place)
                body = b"".join(self._format_event(number, data) for number, data in events)
                if self.name is None:
                    self._events.clear()
                await send({"type": "http.response.body", "body": body, "more_body": True})
            elif self._is_ended:
                break
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wakeup.wait(), _KEEPALIVE_SECONDS)
                    continue
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return writer == self._writer_number

    def _format_event(self, number: int, data: bytes) -> bytes:
        # Encoded JSON has no line breaks.
        if self.name is None:
            return b"data: %b\n\n" % data
        return b"id: %b/%d\ndata: %b\n\n" % (self.name.encode(), number, data)
