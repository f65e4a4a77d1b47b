"""Event streams to HTTP clients: limited in number, bounded for slow readers, kept alive while idle, and
resumable where clients may return."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, TypeAlias

from toolyard.errors import TooManyStreams
from toolyard.protocol.codec import encode
from toolyard.protocol.jsonrpc import Message
from toolyard.types.plurals import format_count

__all__ = ["HEARTBEAT_SECONDS", "EventStream", "Send", "StreamLimits"]

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_UNSENT_MESSAGES = 1000
"""Maximum number of unsent messages for a slow reader. Beyond it, only notifications are dropped."""
_MAX_REPLAY_MESSAGES = 256
"""Maximum number of messages that a returning client can get again."""
_MAX_KEPT_BYTES = 2 * 1024 * 1024
"""Maximum size of the unsent and replayable messages. Beyond it, everything but responses is dropped."""
HEARTBEAT_SECONDS = 15.0
_RETRY_MILLISECONDS = 1000
"""Delay after which a client should reconnect when its stream has ended."""
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # nginx would otherwise collect events and delay them.
    (b"x-accel-buffering", b"no"),
]


class StreamLimits:
    """Limits the open event streams of one process, per user and in total."""

    def __init__(
        self, max_per_user: int, max_total: int, heartbeat_seconds: float = HEARTBEAT_SECONDS
    ) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        """Interval between heartbeats: proxies close silent connections. Also the interval at which the
        sign-in is checked again."""
        self._max_per_user = max_per_user
        self._max_total = max_total
        self._count_by_user: Counter[str] = Counter()

    @property
    def open_streams(self) -> int:
        """Number of open streams of all users."""
        return self._count_by_user.total()

    @contextlib.contextmanager
    def hold(self, user_id: str) -> Generator[None]:
        """Count a stream while it is open. Raises TooManyStreams."""
        if self._count_by_user[user_id] >= self._max_per_user:
            raise TooManyStreams(
                f"the limit of {format_count(self._max_per_user, 'open event stream')} per person is reached",
                hint="close pages and clients that you no longer need, "
                "or ask an admin to raise max_streams_per_person",
            )
        if self.open_streams >= self._max_total:
            raise TooManyStreams(
                f"the limit of {format_count(self._max_total, 'open event stream')} in total is reached",
                hint="try again later, or ask an admin to raise max_streams",
            )
        self._count_by_user[user_id] += 1
        try:
            yield
        finally:
            self._count_by_user[user_id] -= 1
            if not self._count_by_user[user_id]:
                del self._count_by_user[user_id]


class EventStream:
    """Ordered messages for one client. A ``name`` makes the stream resumable."""

    def __init__(self, name: str | None = None, *, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self.name = name
        self.kept_bytes = 0
        """Size of the messages that are unsent, or kept for a returning client."""
        self._max_kept_bytes = max_kept_bytes
        self._events: deque[tuple[int, bytes]] = deque()
        self._last_number = 0
        self._sent_number = 0
        self._is_ended = False
        self._writer_number = 0
        self._reader_count = 0
        self._wakeup = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        """Return whether no message was ever added."""
        return self._last_number == 0

    @property
    def has_started(self) -> bool:
        """Return whether a message was added or a client is reading, so the response belongs into this
        stream."""
        return self._last_number > 0 or self._writer_number > 0

    @property
    def has_reader(self) -> bool:
        """Return whether a client is reading now."""
        return self._reader_count > 0

    def put(self, message: Message) -> None:
        """Add a message, which is sent as soon as the reader accepts it. Never waits."""
        if self._is_ended:
            return
        waiting = self._last_number - self._sent_number
        # Notifications may be lost. A response may not: its caller would wait forever.
        if waiting >= _MAX_UNSENT_MESSAGES and "id" not in message:
            return
        data = encode(message)
        self._drop_sent_events(len(data))
        # A question that is not sent stays unanswered until its call ends. Servers can ask and withdraw
        # without end, so questions have no exemption.
        if "method" in message and self.kept_bytes + len(data) > self._max_kept_bytes:
            return
        self._last_number += 1
        self._events.append((self._last_number, data))
        self.kept_bytes += len(data)
        self._wakeup.set()

    def _drop_sent_events(self, added_bytes: int) -> None:
        """Make room for a message: drop the oldest sent ones, beyond the limits for returning clients."""
        while self._events and self._events[0][0] <= self._sent_number:
            has_room = self.kept_bytes + added_bytes <= self._max_kept_bytes
            if has_room and len(self._events) < _MAX_REPLAY_MESSAGES:
                return
            self.kept_bytes -= len(self._events.popleft()[1])

    def end(self) -> None:
        """Mark the end: no message follows."""
        self._is_ended = True
        self._wakeup.set()

    def disconnect_reader(self) -> None:
        """Stop the current reader; another one may continue."""
        self._writer_number += 1
        self._wakeup.set()

    async def wait_for_message(self) -> None:
        """Wait for a new message or the end."""
        await self._wakeup.wait()

    async def write_to(self, send: Send, *, after: int | None = None) -> bool:
        """Send all messages to an HTTP client until the end, for a returning one those after ``after``.

        A previous reader gets nothing more: each message is sent once. Returns whether this reader got
        everything.
        """
        # A client may return before its lost connection is noticed. The number tells the older reader that it
        # was replaced, so that a message is not sent to a dead connection and lost.
        self._writer_number += 1
        self._reader_count += 1
        self._wakeup.set()
        try:
            return await self._write_events(send, self._writer_number, after)
        finally:
            self._reader_count -= 1

    async def _write_events(self, send: Send, writer: int, after: int | None) -> bool:
        await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS]})
        if self.name is not None and after is None:
            # A client that knows an event id from the start can return whenever the stream breaks.
            prime = f"id: {self.name}/0\nretry: {_RETRY_MILLISECONDS}\ndata:\n\n".encode()
            await send({"type": "http.response.body", "body": prime, "more_body": True})
        place = self._sent_number if after is None else after
        while writer == self._writer_number:
            # Cleared before the events are read: a message that is added while this reader sends sets it
            # again, so that none is overlooked.
            self._wakeup.clear()
            events = [(number, data) for number, data in self._events if number > place]
            if events:
                place = events[-1][0]
                self._sent_number = max(self._sent_number, place)
                body = b"".join(self._format_event(number, data) for number, data in events)
                if self.name is None:
                    self._events.clear()
                    self.kept_bytes = 0
                await send({"type": "http.response.body", "body": body, "more_body": True})
            elif self._is_ended:
                break
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await self._wakeup.wait()
                    continue
                await send({"type": "http.response.body", "body": b":\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return writer == self._writer_number

    def _format_event(self, number: int, data: bytes) -> bytes:
        # Encoded JSON contains no line breaks.
        if self.name is None:
            return b"data: %b\n\n" % data
        return b"id: %b/%d\ndata: %b\n\n" % (self.name.encode(), number, data)
