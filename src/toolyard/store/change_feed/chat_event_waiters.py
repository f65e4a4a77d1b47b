"""Whoever waits for more events of a chat: told at once by this process, and soon by others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.store.change_feed.signals import CHATS, Signals
from toolyard.store.errors import StoreClosed, StoreError
from toolyard.store.repositories.chat_appends import Written
from toolyard.store.repositories.chat_queries import existing, read_events
from toolyard.store.repositories.chat_rows import event_from
from toolyard.store.repositories.event_tail import Ring, Rings, Weighed
from toolyard.store.sql.executor import Workshop
from toolyard.types.chat import Event

__all__ = ["Waiting"]

_PAGE = 1_000


class Waiting:
    """Keeps rings of what was just written. One task hears what others write, and reads it once for all."""

    def __init__(self, workshop: Workshop, signals: Signals) -> None:
        self._workshop = workshop
        self._signals = signals
        self._rings = Rings()
        self._hearing: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, chat_id: str, after: int, seconds: float) -> Sequence[Event]:
        """See ChatStore. Raises NoSuchChat and StoreError, at once when the database is closed."""
        self._hear_others()
        with self._rings.watched(chat_id) as ring:
            try:
                async with asyncio.timeout(max(0.0, seconds)):
                    return await self._more(ring, chat_id, after)
            except TimeoutError:
                # Word of it may have been lost on the way.
                return [event for event, _ in await self._read(chat_id, after)]

    def wrote(self, chat_id: str, written: Written) -> None:
        """This process wrote something."""
        ring = self._rings.get(chat_id)
        if ring is not None:
            ring.push(written.after, list(zip(written.events, written.weights, strict=True)))

    async def close(self) -> None:
        """Nobody waits any longer."""
        self._closed = True
        self._rings.wake()
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait([self._hearing])

    async def _more(self, ring: Ring, chat_id: str, after: int) -> Sequence[Event]:
        while True:
            if self._closed:
                raise StoreClosed("the store was closed", hint="this process is stopping")
            found = ring.after(after)
            if found is None:
                changes = ring.changes
                read = await self._read(chat_id, after)
                if not read:
                    await self._must_be(chat_id)
                if len(read) < _PAGE:
                    ring.fill(after, read, changes)
                found = [event for event, _ in read]
                if not found and ring.changes != changes:
                    continue
            if found:
                return found
            await ring.changed()

    async def _read(self, chat_id: str, after: int) -> list[Weighed]:
        rows = await self._workshop.find(lambda c: read_events(c, chat_id, after, _PAGE), ())
        return _weighed(rows)

    async def _must_be(self, chat_id: str) -> None:
        if not await self._workshop.find(lambda connection: existing(connection, [chat_id]), set[str]()):
            raise NoSuchChat("there is no such chat", hint="it was deleted")

    # What others write.

    def _hear_others(self) -> None:
        if self._hearing is None and not self._closed:
            hearing = self._hear()
            self._hearing = asyncio.get_running_loop().create_task(hearing, name="toolyard-chats")

    async def _hear(self) -> None:
        async with aclosing(self._signals.listen(CHATS)) as listening:
            async for said in listening:
                tops: dict[str, int] = {}
                for chat_id in said.split() if said else self._rings:
                    ring = self._rings.get(chat_id)
                    if ring is not None and ring.watched and ring.floor is not None:
                        tops[chat_id] = ring.top
                    else:
                        self._rings.lose(chat_id)
                if tops:
                    await self._look(tops)

    async def _look(self, tops: dict[str, int]) -> None:
        """Read what came after the last that is known, for all of these chats at once."""

        def work(connection: Connection) -> tuple[dict[str, Sequence[Any]], set[str]]:
            read = {chat_id: read_events(connection, chat_id, top, _PAGE) for chat_id, top in tops.items()}
            quiet = [chat_id for chat_id, rows in read.items() if not rows]
            return read, set(quiet) - existing(connection, quiet)

        try:
            read, gone = await self._workshop.read(work)
        except StoreError:
            # Those who wait will meet it themselves.
            for chat_id in tops:
                self._rings.lose(chat_id)
            return
        for chat_id, rows in read.items():
            ring = self._rings.get(chat_id)
            if ring is None:
                continue
            if len(rows) >= _PAGE or chat_id in gone:
                # Those who wait for a chat that is gone look again, and see it.
                ring.lose()
            elif rows and ring.floor is not None and ring.top == tops[chat_id]:
                ring.push(ring.top, _weighed(rows))
            elif rows and rows[-1].seq > ring.top:
                ring.lose()


def _weighed(rows: Sequence[Any]) -> list[Weighed]:
    return [(event_from(row), len(row.body)) for row in rows]
