"""The last events of chats that somebody looks at, so that what was just written is not read again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

from toolyard.types.chat import PIECES, Event

__all__ = ["Ring", "Rings", "Weighed"]

Weighed = tuple[Event, int]
"""An event, and about how many bytes it takes."""

_EVENTS = 256
_BYTES = 1_000_000
_SPARE = 128
"""Rings that are kept for whoever comes back at once, as a page does that asks for more."""


class Ring:
    """The events of one chat from ``floor`` on, without a gap, as far as this process knows.

    ``floor`` None: it knows nothing. Somebody has to tell it of all that others write.
    """

    def __init__(self) -> None:
        self.floor: int | None = None
        self.top = 0
        self.changes = 0
        """Counts up, so that whoever read meanwhile knows that more happened."""
        self._events: deque[Weighed] = deque()
        self._weight = 0
        self._watchers: set[asyncio.Future[None]] = set()
        self.watched = 0

    def after(self, number: int) -> list[Event] | None:
        """The events after a number; None: it cannot tell."""
        if self.floor is None or number < self.floor:
            return None
        return [event for event, _ in self._events if event.seq > number] if number < self.top else []

    def push(self, after: int, events: Sequence[Weighed]) -> None:
        """More events, which follow on the one with the number ``after``; some may be known by now."""
        if self.floor is None or after > self.top:
            self._begin(after)
        for weighed in events:
            if weighed[0].seq > self.top:
                self._add(weighed)
        self._shrink()
        self.wake()

    def fill(self, after: int, events: Sequence[Weighed], changes: int) -> None:
        """What was read, unless more happened meanwhile."""
        if changes == self.changes:
            self._begin(after)
            self.push(after, events)

    def lose(self) -> None:
        """Others wrote, nobody knows what."""
        self.floor = None
        self._events.clear()
        self._weight = 0
        self.wake()

    def wake(self) -> None:
        """Let everybody look who waits for a change."""
        self.changes += 1
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
        self._watchers.clear()

    async def changed(self) -> None:
        """Wait for a change."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.add(watcher)
        try:
            await watcher
        finally:
            self._watchers.discard(watcher)

    def _begin(self, after: int) -> None:
        self.floor = self.top = after
        self._events.clear()
        self._weight = 0

    def _add(self, weighed: Weighed) -> None:
        event = weighed[0]
        if event.part and event.kind not in PIECES:
            kept = [one for one in self._events if not _replaces(event, one[0])]
            self._events, self._weight = deque(kept), sum(weight for _, weight in kept)
        self._events.append(weighed)
        self._weight += weighed[1]
        self.top = event.seq

    def _shrink(self) -> None:
        while self._events and (len(self._events) > _EVENTS or self._weight > _BYTES):
            event, weight = self._events.popleft()
            self._weight -= weight
            self.floor = event.seq


class Rings:
    """A ring for each chat that somebody looks at, and for a few that somebody has looked at."""

    def __init__(self) -> None:
        self._watched: dict[str, Ring] = {}
        self._spare: OrderedDict[str, Ring] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._watched, *self._spare])

    def get(self, chat_id: str) -> Ring | None:
        """The ring of a chat, if there is one."""
        return self._watched.get(chat_id) or self._spare.get(chat_id)

    @contextmanager
    def watched(self, chat_id: str) -> Generator[Ring]:
        """The ring of a chat, which stays at least as long as this is held."""
        ring = self._watched.get(chat_id)
        if ring is None:
            ring = self._watched[chat_id] = self._spare.pop(chat_id, None) or Ring()
        ring.watched += 1
        try:
            yield ring
        finally:
            ring.watched -= 1
            if not ring.watched:
                self._spare[chat_id] = self._watched.pop(chat_id)
                if len(self._spare) > _SPARE:
                    self._spare.popitem(last=False)

    def lose(self, chat_id: str) -> None:
        """Others wrote to this chat."""
        self._spare.pop(chat_id, None)
        if chat_id in self._watched:
            self._watched[chat_id].lose()

    def wake(self) -> None:
        """Let everybody look who waits."""
        for ring in self._watched.values():
            ring.wake()


def _replaces(event: Event, piece: Event) -> bool:
    return piece.kind in PIECES and piece.part == event.part and piece.turn == event.turn
