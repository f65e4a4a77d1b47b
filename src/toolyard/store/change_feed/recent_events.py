"""Cache of the latest events of viewed chats, which saves reading events that were just written."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from toolyard.concurrency.lru_cache import LruCache
from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent

__all__ = ["EventTails", "RecentEvents", "SizedEvent"]

SizedEvent = tuple[ChatEvent, int]
"""An event and its approximate size in bytes."""

_MAX_TAIL_EVENTS = 256
_MAX_TAIL_BYTES = 1_000_000
_MAX_IDLE_TAILS = 128
"""Maximum number of tails without viewers. A page that polls again shortly afterwards reuses its tail."""


class RecentEvents:
    """Latest events of one chat after ``start_seq``, without gaps.

    A ``start_seq`` of None means that the tail is invalid and must be filled from the database. The owner
    must push or invalidate for every write of another process; otherwise the tail becomes stale.
    """

    def __init__(self) -> None:
        self.start_seq: int | None = None
        self.last_seq = 0
        self.change_count = 0
        """Number of changes so far, by which a reader detects changes during its query."""
        self._events: deque[SizedEvent] = deque()
        self._total_bytes = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self.viewer_count = 0

    def events_after(self, seq: int) -> list[ChatEvent] | None:
        """Return the events after a number; None if they must be read from the database."""
        if self.start_seq is None or seq < self.start_seq:
            return None
        return [event for event, _ in self._events if event.seq > seq] if seq < self.last_seq else []

    def push(self, after: int, events: Sequence[SizedEvent]) -> None:
        """Add events that follow the number ``after``, and wake the waiters. Ignores events already present.

        If events are missing between the tail and ``after``, the tail starts again at ``after``.
        """
        if self.start_seq is None or after > self.last_seq:
            self._restart_at(after)
        for sized_event in events:
            if sized_event[0].seq > self.last_seq:
                self._append_event(sized_event)
        self._trim_to_limits()
        self.wake()

    def fill_if_unchanged(self, after: int, events: Sequence[SizedEvent], change_count: int) -> None:
        """Fill the tail with events read from the database, unless it changed during the query.

        Events pushed during the query may be newer than the result; filling would then lose them.
        """
        if change_count == self.change_count:
            self._restart_at(after)
            self.push(after, events)

    def invalidate(self) -> None:
        """Discard the events after an unknown change, and wake the waiters."""
        self.start_seq = None
        self._events.clear()
        self._total_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Wake all waiters, so that they check for events."""
        self.change_count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait_for_change(self) -> None:
        """Wait until the next push, invalidation or wake."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _restart_at(self, after: int) -> None:
        self.start_seq = self.last_seq = after
        self._events.clear()
        self._total_bytes = 0

    def _append_event(self, sized_event: SizedEvent) -> None:
        event = sized_event[0]
        if event.part and event.kind not in TRANSIENT_KINDS:
            # A complete part replaces its streamed pieces, which are deleted in the database as well.
            remaining = [existing for existing in self._events if not _is_replacement(event, existing[0])]
            self._events, self._total_bytes = deque(remaining), sum(size for _, size in remaining)
        self._events.append(sized_event)
        self._total_bytes += sized_event[1]
        self.last_seq = event.seq

    def _trim_to_limits(self) -> None:
        while self._events and (len(self._events) > _MAX_TAIL_EVENTS or self._total_bytes > _MAX_TAIL_BYTES):
            event, size = self._events.popleft()
            self._total_bytes -= size
            # Readers before this position go to the database. So trimming may cost a query, but never an
            # event.
            self.start_seq = event.seq


class EventTails:
    """Event tails of all viewed chats, and of recently viewed ones."""

    def __init__(self, max_idle: int = _MAX_IDLE_TAILS) -> None:
        self._active: dict[str, RecentEvents] = {}
        self._idle: LruCache[str, RecentEvents] = LruCache(max_idle)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._active, *self._idle])

    def get(self, chat_id: str) -> RecentEvents | None:
        """Return the tail of a chat; None if it has none."""
        return self._active.get(chat_id) or self._idle.get(chat_id)

    @contextmanager
    def hold(self, chat_id: str) -> Generator[RecentEvents]:
        """Hold the tail of a chat, creating it if needed. It is not evicted while held."""
        tail = self._active.get(chat_id)
        if tail is None:
            tail = self._active[chat_id] = self._idle.pop(chat_id, None) or RecentEvents()
        tail.viewer_count += 1
        try:
            yield tail
        finally:
            tail.viewer_count -= 1
            if not tail.viewer_count:
                # Keep the tail for a while, up to a limit: the oldest idle one is evicted first.
                self._idle[chat_id] = self._active.pop(chat_id)

    def invalidate(self, chat_id: str) -> None:
        """Invalidate the tail of a chat after a write by another process."""
        # An idle tail has no waiters and is simply dropped.
        self._idle.pop(chat_id, None)
        if chat_id in self._active:
            self._active[chat_id].invalidate()

    def wake(self) -> None:
        """Wake the waiters of all tails."""
        for tail in self._active.values():
            tail.wake()


def _is_replacement(event: ChatEvent, piece: ChatEvent) -> bool:
    return piece.kind in TRANSIENT_KINDS and piece.part == event.part and piece.turn == event.turn
