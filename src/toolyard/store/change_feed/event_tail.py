"""The last events of chats that somebody looks at, so that what was just written is not read again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent

__all__ = ["EventTail", "EventTails", "SizedEvent"]

SizedEvent = tuple[ChatEvent, int]
"""An event, and about how many bytes it takes."""

_MAX_TAIL_EVENTS = 256
_MAX_TAIL_BYTES = 1_000_000
_MAX_IDLE_TAILS = 128
"""Rings that are kept for whoever comes back at once, as a page does that asks for more."""


class EventTail:
    """The events of one chat from ``floor`` on, without a gap, as far as this process knows.

    ``floor`` None: it knows nothing. Somebody has to tell it of all that others write.
    """

    def __init__(self) -> None:
        self.start_seq: int | None = None
        self.last_seq = 0
        self.changes = 0
        """Counts up, so that whoever read meanwhile knows that more happened."""
        self._events: deque[SizedEvent] = deque()
        self._total_bytes = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self.viewer_count = 0

    def events_after(self, seq: int) -> list[ChatEvent] | None:
        """The events after a number; None: it cannot tell."""
        if self.start_seq is None or seq < self.start_seq:
            return None
        return [event for event, _ in self._events if event.seq > seq] if seq < self.last_seq else []

    def push(self, after: int, events: Sequence[SizedEvent]) -> None:
        """More events, which follow on the one with the number ``after``; some may be known by now."""
        if self.start_seq is None or after > self.last_seq:
            self._restart_at(after)
        for weighed in events:
            if weighed[0].seq > self.last_seq:
                self._append_event(weighed)
        self._trim_to_limits()
        self.wake()

    def fill_if_unchanged(self, after: int, events: Sequence[SizedEvent], change_count: int) -> None:
        """What was read, unless more happened meanwhile."""
        if change_count == self.changes:
            self._restart_at(after)
            self.push(after, events)

    def invalidate(self) -> None:
        """Others wrote, nobody knows what."""
        self.start_seq = None
        self._events.clear()
        self._total_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Let everybody look who waits for a change."""
        self.changes += 1
        for watcher in self._waiters:
            if not watcher.done():
                watcher.set_result(None)
        self._waiters.clear()

    async def changed(self) -> None:
        """Wait for a change."""
        watcher = asyncio.get_running_loop().create_future()
        self._waiters.add(watcher)
        try:
            await watcher
        finally:
            self._waiters.discard(watcher)

    def _restart_at(self, after: int) -> None:
        self.start_seq = self.last_seq = after
        self._events.clear()
        self._total_bytes = 0

    def _append_event(self, sized_event: SizedEvent) -> None:
        event = sized_event[0]
        if event.part and event.kind not in TRANSIENT_KINDS:
            kept = [one for one in self._events if not _is_replacement(event, one[0])]
            self._events, self._total_bytes = deque(kept), sum(weight for _, weight in kept)
        self._events.append(sized_event)
        self._total_bytes += sized_event[1]
        self.last_seq = event.seq

    def _trim_to_limits(self) -> None:
        while self._events and (len(self._events) > _MAX_TAIL_EVENTS or self._total_bytes > _MAX_TAIL_BYTES):
            event, weight = self._events.popleft()
            self._total_bytes -= weight
            self.start_seq = event.seq


class EventTails:
    """A ring for each chat that somebody looks at, and for a few that somebody has looked at."""

    def __init__(self) -> None:
        self._active: dict[str, EventTail] = {}
        self._idle: OrderedDict[str, EventTail] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._active, *self._idle])

    def get(self, chat_id: str) -> EventTail | None:
        """The ring of a chat, if there is one."""
        return self._active.get(chat_id) or self._idle.get(chat_id)

    @contextmanager
    def hold(self, chat_id: str) -> Generator[EventTail]:
        """The ring of a chat, which stays at least as long as this is held."""
        ring = self._active.get(chat_id)
        if ring is None:
            ring = self._active[chat_id] = self._idle.pop(chat_id, None) or EventTail()
        ring.viewer_count += 1
        try:
            yield ring
        finally:
            ring.viewer_count -= 1
            if not ring.viewer_count:
                self._idle[chat_id] = self._active.pop(chat_id)
                if len(self._idle) > _MAX_IDLE_TAILS:
                    self._idle.popitem(last=False)

    def invalidate(self, chat_id: str) -> None:
        """Others wrote to this chat."""
        self._idle.pop(chat_id, None)
        if chat_id in self._active:
            self._active[chat_id].invalidate()

    def wake(self) -> None:
        """Let everybody look who waits."""
        for ring in self._active.values():
            ring.wake()


def _is_replacement(event: ChatEvent, piece: ChatEvent) -> bool:
    return piece.kind in TRANSIENT_KINDS and piece.part == event.part and piece.turn == event.turn
