"""Chats: their events, who works on them, and whoever waits for more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sqlalchemy import Connection, and_, delete, func, or_, select, update

from toolyard.agents.chat.errors import ChatError
from toolyard.store.change_feed.chat_event_waiters import Waiting
from toolyard.store.change_feed.signals import CHATS as CHANGED
from toolyard.store.change_feed.signals import STOPS, Signals
from toolyard.store.errors import StoreError
from toolyard.store.repositories.chat_appends import Request, Written, now, write
from toolyard.store.repositories.chat_queries import latest_of, matching, read_events, read_kept
from toolyard.store.repositories.chat_quota import ChatQuota, ChatUsage, chat_usage
from toolyard.store.repositories.chat_rows import CHATS, Line, chat_from, chat_values, event_from
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.tables import approvals, chats
from toolyard.store.sql.write_batcher import Gathering
from toolyard.types.chat import Chat, Event, NewEvent, TurnState

__all__ = ["SqlChats"]

_PAGE = 10_000
_IDS = 6_000
"""Characters of ids in one signal."""
_PAUSE = 1.0
"""Seconds between tries to see who shall stop, while the database is away."""

_log = logging.getLogger("toolyard.store.chats")


class SqlChats:
    """A ChatStore."""

    def __init__(
        self,
        workshop: Workshop,
        signals: Signals,
        clock: Callable[[], float],
        quota: ChatQuota = ChatQuota(),  # noqa: B008 - frozen
    ) -> None:
        self.quota = quota
        self._workshop = workshop
        self._signals = signals
        self._clock = clock
        self._waiting = Waiting(workshop, signals)
        self._gathering: Gathering[Request, Written | ChatError | None] = Gathering(
            self._write, lambda request: request.weight
        )

    async def close(self) -> None:
        """Write what waits to be written, and end every waiting."""
        await self._gathering.close()
        await self._waiting.close()

    # Chats.

    async def create(self, chat: Chat) -> None:
        """See ChatStore. Raises Conflict where there is one with that id, and ChatQuotaExceeded."""
        adding = chats.insert().values(
            id=chat.id,
            owner=chat.owner,
            created_at=chat.created_at,
            updated_at=chat.updated_at,
            state=chat.state.value,
            turn=chat.turn,
            last=chat.last,
            stop_asked=False,
            **chat_values(chat),
        )

        def work(connection: Connection) -> None:
            self.quota.check(chat_usage(connection, chat.owner), new_chat=True)
            connection.execute(adding)

        await self._workshop.write(work)

    async def usage(self, owner: str) -> ChatUsage:
        """How much a person's chats use. Raises StoreError."""
        return await self._workshop.read(lambda connection: chat_usage(connection, owner))

    async def get(self, owner: str, chat_id: str) -> Chat | None:
        """See ChatStore."""
        query = CHATS.where(_owned(owner, chat_id))
        row = await self._workshop.find(lambda connection: connection.execute(query).one_or_none(), None)
        return None if row is None else chat_from(row)

    async def chats(
        self,
        owner: str,
        *,
        words: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """See ChatStore."""
        query = CHATS.where(chats.c.owner == owner, *matching(words or ""))
        if before is not None:
            at, chat_id = before
            same = and_(chats.c.updated_at == at, chats.c.id < chat_id)
            query = query.where(or_(chats.c.updated_at < at, same))
        query = query.order_by(chats.c.updated_at.desc(), chats.c.id.desc()).limit(_most(limit))
        rows = await self._workshop.find(lambda connection: connection.execute(query).all(), ())
        return [chat_from(row) for row in rows]

    async def change(self, chat: Chat) -> bool:
        """See ChatStore."""
        changing = update(chats).where(_owned(chat.owner, chat.id)).values(**chat_values(chat))
        return await self._workshop.write(lambda connection: connection.execute(changing).rowcount) > 0

    async def delete(self, owner: str, chat_id: str) -> bool:
        """See ChatStore."""

        def work(connection: Connection) -> bool:
            if not connection.execute(delete(chats).where(_owned(owner, chat_id))).rowcount:
                return False
            self._signals.tell(connection, CHANGED, chat_id)
            return True

        return await self._workshop.change(work, False)

    # Events.

    async def events(self, chat_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[Event]:
        """See ChatStore."""
        rows = await self._workshop.find(lambda c: read_events(c, chat_id, after, _most(limit)), ())
        return [event_from(row) for row in rows]

    async def latest(self, chat_id: str, *, before: int | None = None, limit: int = 200) -> Sequence[Event]:
        """See ChatStore."""
        rows = await self._workshop.find(lambda c: latest_of(c, chat_id, before, _most(limit)), ())
        return [event_from(row) for row in rows]

    async def wait(self, chat_id: str, after: int, seconds: float) -> Sequence[Event]:
        """See ChatStore."""
        return await self._waiting.wait(chat_id, after, seconds)

    async def kept(self, chat_id: str, seq: int) -> bytes | None:
        """See ChatStore."""
        return (await self.kept_of(chat_id, [seq])).get(seq)

    async def kept_of(self, chat_id: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """See ChatStore."""
        return await self._workshop.find(
            lambda connection: read_kept(connection, chat_id, seqs), dict[int, bytes]()
        )

    # Turns.

    async def claim(
        self, chat_id: str, runner: str, was: TurnState, events: Sequence[NewEvent], *, new_turn: bool
    ) -> Sequence[Event] | None:
        """See ChatStore."""
        return await self._put(chat_id, events, runner=runner, was=was, new_turn=new_turn)

    async def append(
        self, chat_id: str, runner: str, events: Sequence[NewEvent], *, then: TurnState = TurnState.RUNNING
    ) -> Sequence[Event]:
        """See ChatStore."""
        return await self._put(chat_id, events, runner=runner, then=then) or ()

    async def remark(self, chat_id: str, events: Sequence[NewEvent]) -> Sequence[Event]:
        """See ChatStore. Raises NoSuchChat."""
        return await self._put(chat_id, events) or ()

    async def _put(self, chat_id: str, events: Sequence[NewEvent], **how: Any) -> Sequence[Event] | None:
        request = Request(chat_id, [Line.of(event) for event in events], self._clock(), **how)
        outcome = await self._gathering.put(request)
        if isinstance(outcome, ChatError):
            raise outcome
        return None if outcome is None else outcome.events

    async def _write(self, requests: Sequence[Request]) -> Sequence[Written | ChatError | None]:
        clock = self._clock()

        def work(connection: Connection) -> list[Written | ChatError | None]:
            outcomes = write(connection, requests, clock, self.quota)
            for ids in _texts(_changed(requests, outcomes)):
                self._signals.tell(connection, CHANGED, ids, here=False)
            return outcomes

        outcomes = await self._workshop.write(work)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Written) and outcome.events:
                self._waiting.wrote(request.chat_id, outcome)
        return outcomes

    async def beat(self, runner: str) -> None:
        """See ChatStore."""

        def work(connection: Connection) -> None:
            held = update(chats).where(chats.c.runner == runner)
            connection.execute(held.values(beat_at=now(connection, self._clock())))

        await self._workshop.write(work)

    async def interrupted(self, gone: Callable[[str, float], bool]) -> Sequence[Chat]:
        """See ChatStore."""

        def work(connection: Connection) -> Sequence[Any]:
            # A beat in the future is from before the clock was set: its runner is as silent as an old one.
            since = func.abs(now(connection, self._clock()) - chats.c.beat_at).label("since")
            running = chats.c.state == TurnState.RUNNING.value
            query = CHATS.add_columns(chats.c.runner, since).where(chats.c.runner.is_not(None), running)
            return connection.execute(query.order_by(chats.c.id)).all()

        rows = await self._workshop.read(work)
        return [chat_from(row) for row in rows if gone(row.runner, float(row.since or 0.0))]

    async def answered(self) -> Sequence[Chat]:
        """See ChatStore."""
        open_ = select(approvals.c.id).where(
            approvals.c.chat_id == chats.c.id, approvals.c.answered_at.is_(None)
        )
        query = CHATS.where(chats.c.state == TurnState.WAITING.value, ~open_.exists()).order_by(chats.c.id)
        rows = await self._workshop.read(lambda connection: connection.execute(query).all())
        return [chat_from(row) for row in rows]

    async def take_over(self, chat_id: str, runner: str, was: str) -> bool:
        """See ChatStore."""

        def work(connection: Connection) -> bool:
            running = (chats.c.id == chat_id) & (chats.c.state == TurnState.RUNNING.value)
            taking = update(chats).where(running, chats.c.runner == was)
            taking = taking.values(runner=runner, beat_at=now(connection, self._clock()))
            return connection.execute(taking).rowcount > 0

        return await self._workshop.change(work, False)

    async def runner(self, chat_id: str) -> str | None:
        """See ChatStore."""
        query = select(chats.c.runner).where(chats.c.id == chat_id)
        return await self._workshop.find(lambda connection: connection.execute(query).scalar(), None)

    # Stopping. The wish is kept until the chat is let go, for a runner that missed the word of it.

    async def ask_to_stop(self, chat_id: str) -> None:
        """See ChatStore."""

        def work(connection: Connection) -> None:
            running = (chats.c.id == chat_id) & chats.c.runner.is_not(None)
            if connection.execute(update(chats).where(running).values(stop_asked=True)).rowcount:
                self._signals.tell(connection, STOPS, chat_id)

        await self._workshop.change(work, None)

    async def stops(self) -> AsyncGenerator[str]:
        """See ChatStore. A chat may come twice: found by looking, and by word. Ends when this is closed."""
        known: frozenset[str] = frozenset()
        async with aclosing(self._signals.listen(STOPS)) as listening:
            async for said in listening:
                asked = frozenset({said}) if said else await self._asked()
                for chat_id in sorted(asked if said else asked - known):
                    yield chat_id
                known = known | asked if said else asked

    async def _asked(self) -> frozenset[str]:
        query = select(chats.c.id).where(chats.c.runner.is_not(None), chats.c.stop_asked.is_(True))
        while True:
            try:
                found = await self._workshop.read(lambda c: c.execute(query).scalars().all())
                return frozenset(found)
            except StoreError as error:
                _log.warning("it cannot be seen which chats shall stop: %s", error.cause)
                await asyncio.sleep(_PAUSE)


def _owned(owner: str, chat_id: str) -> Any:
    return (chats.c.id == chat_id) & (chats.c.owner == owner)


def _most(limit: int) -> int:
    return max(0, min(limit, _PAGE))


def _changed(requests: Sequence[Request], outcomes: Sequence[Written | ChatError | None]) -> list[str]:
    pairs = zip(requests, outcomes, strict=True)
    return list({one.chat_id: None for one, done in pairs if isinstance(done, Written) and done.events})


def _texts(ids: Sequence[str]) -> list[str]:
    """Many ids in few texts, each short enough for a signal."""
    texts: list[str] = []
    for chat_id in ids:
        if texts and len(texts[-1]) + len(chat_id) < _IDS:
            texts[-1] += f" {chat_id}"
        else:
            texts.append(chat_id)
    return texts
