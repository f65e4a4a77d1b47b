"""Waiting for new events of a chat.

Events written by this process are delivered from memory: a cache of the latest events of viewed chats saves
reading events that were just written. For those of other processes one task listens on the change feed and
reads the new rows once for all waiters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection

from toolyard.concurrency.lru_cache import LruCache
from toolyard.errors import NoSuchChat
from toolyard.store.change_feed.signals import CHATS_CHANNEL, Signals
from toolyard.store.errors import StoreClosed, StoreError
from toolyard.store.repositories.chat_appends import AppendedEvents
from toolyard.store.repositories.chat_rows import event_from_row, find_existing_chats, read_events
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent

__all__ = ["ChatEventWaiters", "RecentEventBuffers", "RecentEvents", "SizedEvent", "WaitForEvents"]


SizedEvent = tuple[ChatEvent, int]
"""An event and its approximate size in bytes."""
WaitForEvents: TypeAlias = Callable[[int, float], Coroutine[Any, Any, Sequence[ChatEvent]]]
"""Waits for the events of one chat after a sequence number, for some seconds."""

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
        self._parts_with_pieces: set[tuple[int, str]] = set()
        self._waiters: set[asyncio.Future[None]] = set()
        self.viewer_count = 0

    @property
    def waiter_count(self) -> int:
        """Number of viewers that wait for new events."""
        return len(self._waiters)

    def events_after(self, seq: int) -> list[ChatEvent] | None:
        """Return the events after a number; None if they must be read from the database."""
        if self.start_seq is None or seq < self.start_seq:
            return None
        newer: list[ChatEvent] = []
        # Readers mostly lack the last few of many events.
        for event, _ in reversed(self._events):
            if event.seq <= seq:
                break
            newer.append(event)
        return newer[::-1]

    def push(self, after: int, events: Sequence[SizedEvent]) -> None:
        """Add events that follow the number ``after``, and wake the waiters. Ignores events already present.

        If events are missing between the tail and ``after``, the tail starts again at ``after``.
        """
        if self.start_seq is None or after > self.last_seq:
            self._restart_at(after)
        for event, size in events:
            if event.seq <= self.last_seq:
                continue
            if event.part and event.kind in TRANSIENT_KINDS:
                self._parts_with_pieces.add((event.turn, event.part))
            elif (event.turn, event.part) in self._parts_with_pieces:
                self._drop_pieces(event.turn, event.part)
            self._events.append((event, size))
            self._total_bytes += size
            self.last_seq = event.seq
        while self._events and (len(self._events) > _MAX_TAIL_EVENTS or self._total_bytes > _MAX_TAIL_BYTES):
            event, size = self._events.popleft()
            self._total_bytes -= size
            # Readers before this position go to the database. So trimming may cost a query, but never an
            # event.
            self.start_seq = event.seq
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
        self._parts_with_pieces.clear()
        self._events.clear()
        self._total_bytes = 0

    def _drop_pieces(self, turn: int, part: str) -> None:
        """Drop the streamed pieces that a complete part replaces, as in the database."""
        self._parts_with_pieces.discard((turn, part))
        self._events = deque(
            (each, size)
            for each, size in self._events
            if (each.turn, each.part) != (turn, part) or each.kind not in TRANSIENT_KINDS
        )
        self._total_bytes = sum(size for _, size in self._events)


class RecentEventBuffers:
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


_MAX_EVENTS_PER_READ = 1_000


class ChatEventWaiters:
    """Delivers new events to waiting clients, from a tail of recent events for each viewed chat."""

    def __init__(self, executor: DatabaseExecutor, signals: Signals) -> None:
        self._executor = executor
        self._signals = signals
        self.tails = RecentEventBuffers()
        self._listen_task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, chat_id: str, after: int, seconds: float) -> Sequence[ChatEvent]:
        """Return events after a sequence number, in order, as soon as there are any; none after ``seconds``.

        Events appended by this process are returned at once, those of other processes after a short delay.
        Raises NoSuchChat as soon as the chat does not exist, and StoreError, at once when the database is
        closed.
        """
        with self.follow(chat_id) as wait:
            return await wait(after, seconds)

    @contextmanager
    def follow(self, chat_id: str) -> Generator[WaitForEvents]:
        """Keep the recent events of a chat, and yield the function that waits for the next ones as ``wait``
        does."""
        if self._listen_task is None and not self._closed:
            coroutine = self._listen_for_changes()
            self._listen_task = asyncio.get_running_loop().create_task(coroutine, name="toolyard-chats")
        with self.tails.hold(chat_id) as tail:
            yield partial(self._wait_in, tail, chat_id)

    def publish(self, chat_id: str, appended: AppendedEvents) -> None:
        """Deliver events that this process has appended."""
        tail = self.tails.get(chat_id)
        if tail is not None:
            tail.push(appended.after, list(zip(appended.events, appended.sizes, strict=True)))

    async def close(self) -> None:
        """End all waits with StoreClosed, and stop listening."""
        self._closed = True
        self.tails.wake()
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])

    async def _wait_in(
        self, tail: RecentEvents, chat_id: str, after: int, seconds: float
    ) -> Sequence[ChatEvent]:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                while True:
                    if self._closed:
                        raise StoreClosed()
                    events = tail.events_after(after)
                    if events is None:
                        events = await self._read_into_tail(tail, chat_id, after)
                    if events:
                        return events
                    if events is not None:
                        await tail.wait_for_change()
        except TimeoutError:
            # Read the table once more, since a notification may have been lost.
            return [event for event, _ in await self._read_events(chat_id, after)]

    async def _read_into_tail(self, tail: RecentEvents, chat_id: str, after: int) -> list[ChatEvent] | None:
        """Return the events of the table; None if there are none, and the tail changed during the query."""
        # If the tail changes during the query, the result may be outdated: it must not fill the tail, and an
        # empty result must be read again.
        change_count = tail.change_count
        read = await self._read_events(chat_id, after)
        # Only an empty answer may mean that the chat was deleted; others need no second query.
        if not read:
            await self._require_chat(chat_id)
        # A full page may not be the end of the chat, and a tail must have no gap up to its last event.
        if len(read) < _MAX_EVENTS_PER_READ:
            tail.fill_if_unchanged(after, read, change_count)
        return [event for event, _ in read] or (None if tail.change_count != change_count else [])

    async def _read_events(self, chat_id: str, after: int) -> list[SizedEvent]:
        rows = await self._executor.read_or_default(
            lambda c: read_events(c, chat_id, after, _MAX_EVENTS_PER_READ), ()
        )
        return _sized_events(rows)

    async def _require_chat(self, chat_id: str) -> None:
        if not await self._executor.read_or_default(
            lambda connection: find_existing_chats(connection, [chat_id]), set[str]()
        ):
            raise NoSuchChat("chat not found", hint="it was deleted")

    # Events of other processes.

    async def _listen_for_changes(self) -> None:
        async with aclosing(self._signals.listen(CHATS_CHANNEL)) as listening:
            async for message in listening:
                last_seqs: dict[str, int] = {}
                for chat_id in message.split() if message else self.tails:
                    tail = self.tails.get(chat_id)
                    # Read new rows only for chats with viewers. Other tails are cheaper to fill when needed.
                    if tail is not None and tail.viewer_count and tail.start_seq is not None:
                        last_seqs[chat_id] = tail.last_seq
                    else:
                        self.tails.invalidate(chat_id)
                if last_seqs:
                    await self._read_new_events(last_seqs)

    async def _read_new_events(self, last_seqs: dict[str, int]) -> None:
        """Read the events after the last known number of each chat, in one piece of work."""

        def read_new_events(connection: Connection) -> tuple[dict[str, Sequence[Any]], set[str]]:
            read = {
                chat_id: read_events(connection, chat_id, last_seq, _MAX_EVENTS_PER_READ)
                for chat_id, last_seq in last_seqs.items()
            }
            without_events = [chat_id for chat_id, rows in read.items() if not rows]
            return read, set(without_events) - find_existing_chats(connection, without_events)

        try:
            read, deleted = await self._executor.read(read_new_events)
        except StoreError:
            # The waiters read the table themselves now, and so get the error.
            for chat_id in last_seqs:
                self.tails.invalidate(chat_id)
            return
        for chat_id, rows in read.items():
            tail = self.tails.get(chat_id)
            if tail is None:
                continue
            if len(rows) >= _MAX_EVENTS_PER_READ or chat_id in deleted:
                # Too many events to push, or the chat was deleted: the waiters read the table, and raise
                # NoSuchChat for a deleted chat.
                tail.invalidate()
            elif rows and tail.start_seq is not None and tail.last_seq == last_seqs[chat_id]:
                tail.push(tail.last_seq, _sized_events(rows))
            elif rows and rows[-1].seq > tail.last_seq:
                # The tail changed during the query, and these rows may leave a gap to it.
                tail.invalidate()


def _sized_events(rows: Sequence[Any]) -> list[SizedEvent]:
    return [(event_from_row(row), len(row.body)) for row in rows]
