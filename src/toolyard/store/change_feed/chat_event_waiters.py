"""Whoever waits for more events of a chat: told at once by this process, and soon by others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.store.change_feed.event_tail import EventTail, EventTails, SizedEvent
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
    """Keeps rings of what was just written. One task hears what others write, and reads it once for all."""

    def __init__(self, executor: DatabaseExecutor, signals: Signals) -> None:
        self._executor = executor
        self._signals = signals
        self._tails = EventTails()
        self._listen_task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, chat_id: str, after: int, seconds: float) -> Sequence[ChatEvent]:
        """See ChatStore. Raises NoSuchChat and StoreError, at once when the database is closed."""
        self._start_listening()
        with self._tails.hold(chat_id) as ring:
            try:
                async with asyncio.timeout(max(0.0, seconds)):
                    return await self._next_events(ring, chat_id, after)
            except TimeoutError:
                # Word of it may have been lost on the way.
                return [event for event, _ in await self._read_events(chat_id, after)]

    def publish(self, chat_id: str, appended: AppendedEvents) -> None:
        """This process wrote something."""
        ring = self._tails.get(chat_id)
        if ring is not None:
            ring.push(appended.after, list(zip(appended.events, appended.sizes, strict=True)))

    async def close(self) -> None:
        """Nobody waits any longer."""
        self._closed = True
        self._tails.wake()
        if self._listen_task is not None:
            self._listen_task.cancel()
            await asyncio.wait([self._listen_task])

    async def _next_events(self, tail: EventTail, chat_id: str, after: int) -> Sequence[ChatEvent]:
        while True:
            if self._closed:
                raise StoreClosed("the store was closed", hint="this process is stopping")
            found = tail.events_after(after)
            if found is None:
                changes = tail.changes
                read = await self._read_events(chat_id, after)
                if not read:
                    await self._require_chat(chat_id)
                if len(read) < _MAX_EVENTS_PER_READ:
                    tail.fill_if_unchanged(after, read, changes)
                found = [event for event, _ in read]
                if not found and tail.changes != changes:
                    continue
            if found:
                return found
            await tail.changed()

    async def _read_events(self, chat_id: str, after: int) -> list[SizedEvent]:
        rows = await self._executor.read_or_default(
            lambda c: read_events(c, chat_id, after, _MAX_EVENTS_PER_READ), ()
        )
        return _sized_events(rows)

    async def _require_chat(self, chat_id: str) -> None:
        if not await self._executor.read_or_default(
            lambda connection: find_existing_chats(connection, [chat_id]), set[str]()
        ):
            raise NoSuchChat("there is no such chat", hint="it was deleted")

    # What others write.

    def _start_listening(self) -> None:
        if self._listen_task is None and not self._closed:
            hearing = self._listen_for_changes()
            self._listen_task = asyncio.get_running_loop().create_task(hearing, name="toolyard-chats")

    async def _listen_for_changes(self) -> None:
        async with aclosing(self._signals.listen(CHATS_CHANNEL)) as listening:
            async for said in listening:
                tops: dict[str, int] = {}
                for chat_id in said.split() if said else self._tails:
                    ring = self._tails.get(chat_id)
                    if ring is not None and ring.viewer_count and ring.start_seq is not None:
                        tops[chat_id] = ring.last_seq
                    else:
                        self._tails.invalidate(chat_id)
                if tops:
                    await self._refresh_tails(tops)

    async def _refresh_tails(self, last_seqs: dict[str, int]) -> None:
        """Read what came after the last that is known, for all of these chats at once."""

        def work(connection: Connection) -> tuple[dict[str, Sequence[Any]], set[str]]:
            read = {
                chat_id: read_events(connection, chat_id, top, _MAX_EVENTS_PER_READ)
                for chat_id, top in last_seqs.items()
            }
            quiet = [chat_id for chat_id, rows in read.items() if not rows]
            return read, set(quiet) - find_existing_chats(connection, quiet)

        try:
            read, gone = await self._executor.read(work)
        except StoreError:
            # Those who wait will meet it themselves.
            for chat_id in last_seqs:
                self._tails.invalidate(chat_id)
            return
        for chat_id, rows in read.items():
            ring = self._tails.get(chat_id)
            if ring is None:
                continue
            if len(rows) >= _MAX_EVENTS_PER_READ or chat_id in gone:
                # Those who wait for a chat that is gone look again, and see it.
                ring.invalidate()
            elif rows and ring.start_seq is not None and ring.last_seq == last_seqs[chat_id]:
                ring.push(ring.last_seq, _sized_events(rows))
            elif rows and rows[-1].seq > ring.last_seq:
                ring.invalidate()


def _sized_events(rows: Sequence[Any]) -> list[SizedEvent]:
    return [(event_from_row(row), len(row.body)) for row in rows]
