"""Waiting for new events of a chat.

Events written by this process are delivered from memory. For those of other processes one task listens on the
change feed and reads the new rows once for all waiters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection

from toolyard.errors import NoSuchChat
from toolyard.store.change_feed.recent_events import EventTails, RecentEvents, SizedEvent
from toolyard.store.change_feed.signals import CHATS_CHANNEL, Signals
from toolyard.store.errors import StoreClosed, StoreError
from toolyard.store.repositories.chat_appends import AppendedEvents
from toolyard.store.repositories.chat_queries import find_existing_chats, read_events
from toolyard.store.repositories.chat_rows import event_from_row
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.types.chat import ChatEvent

__all__ = ["ChatEventWaiters"]

_MAX_EVENTS_PER_READ = 1_000


class ChatEventWaiters:
    """Delivers new events to waiting clients, from a tail of recent events for each viewed chat."""

    def __init__(self, executor: DatabaseExecutor, signals: Signals) -> None:
        self._executor = executor
        self._signals = signals
        self._tails = EventTails()
        self._listen_task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, chat_id: str, after: int, seconds: float) -> Sequence[ChatEvent]:
        """Return the events after a number, waiting up to ``seconds`` for them; empty after that time.

        Raises NoSuchChat, and StoreError, at once when the database is closed.
        """
        self._start_listening()
        with self._tails.hold(chat_id) as tail:
            try:
                async with asyncio.timeout(max(0.0, seconds)):
                    return await self._next_events(tail, chat_id, after)
            except TimeoutError:
                # Read the table once more, since a notification may have been lost.
                return [event for event, _ in await self._read_events(chat_id, after)]

    def publish(self, chat_id: str, appended: AppendedEvents) -> None:
        """Deliver events that this process has appended."""
        tail = self._tails.get(chat_id)
        if tail is not None:
            tail.push(appended.after, list(zip(appended.events, appended.sizes, strict=True)))

    async def close(self) -> None:
        """End all waits with StoreClosed, and stop listening."""
        self._closed = True
        self._tails.wake()
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])

    async def _next_events(self, tail: RecentEvents, chat_id: str, after: int) -> Sequence[ChatEvent]:
        while True:
            if self._closed:
                raise StoreClosed("the store was closed", hint="this process is stopping")
            events = tail.events_after(after)
            if events is None:
                # The tail cannot answer, so read the table. If the tail changes during the query, the result
                # may be outdated: it must not fill the tail, and an empty result must be read again.
                change_count = tail.change_count
                read = await self._read_events(chat_id, after)
                # Only an empty answer may mean that the chat was deleted; others need no second query.
                if not read:
                    await self._require_chat(chat_id)
                # A full page may not be the end of the chat, and a tail must have no gap up to its last
                # event.
                if len(read) < _MAX_EVENTS_PER_READ:
                    tail.fill_if_unchanged(after, read, change_count)
                events = [event for event, _ in read]
                if not events and tail.change_count != change_count:
                    continue
            if events:
                return events
            await tail.wait_for_change()

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

    def _start_listening(self) -> None:
        if self._listen_task is None and not self._closed:
            coroutine = self._listen_for_changes()
            self._listen_task = asyncio.get_running_loop().create_task(coroutine, name="toolyard-chats")

    async def _listen_for_changes(self) -> None:
        async with aclosing(self._signals.listen(CHATS_CHANNEL)) as listening:
            async for message in listening:
                last_seqs: dict[str, int] = {}
                for chat_id in message.split() if message else self._tails:
                    tail = self._tails.get(chat_id)
                    # Read new rows only for chats with viewers. Other tails are cheaper to fill when needed.
                    if tail is not None and tail.viewer_count and tail.start_seq is not None:
                        last_seqs[chat_id] = tail.last_seq
                    else:
                        self._tails.invalidate(chat_id)
                if last_seqs:
                    await self._refresh_tails(last_seqs)

    async def _refresh_tails(self, last_seqs: dict[str, int]) -> None:
        """Read the events after the last known number of each chat, in one piece of work."""

        def work(connection: Connection) -> tuple[dict[str, Sequence[Any]], set[str]]:
            read = {
                chat_id: read_events(connection, chat_id, last_seq, _MAX_EVENTS_PER_READ)
                for chat_id, last_seq in last_seqs.items()
            }
            without_events = [chat_id for chat_id, rows in read.items() if not rows]
            return read, set(without_events) - find_existing_chats(connection, without_events)

        try:
            read, deleted = await self._executor.read(work)
        except StoreError:
            # The waiters read the table themselves now, and so get the error.
            for chat_id in last_seqs:
                self._tails.invalidate(chat_id)
            return
        for chat_id, rows in read.items():
            tail = self._tails.get(chat_id)
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
