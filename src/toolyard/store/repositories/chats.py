"""Storage of chats: their events, the claims of runners, stop requests, and waiting for new events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, or_, select, update

from toolyard.errors import ChatError
from toolyard.store.change_feed.chat_event_waiters import ChatEventWaiters
from toolyard.store.change_feed.signals import CHAT_STOPS_CHANNEL, CHATS_CHANNEL, Signals
from toolyard.store.errors import StoreError
from toolyard.store.repositories.attachments import SqlAttachmentStore
from toolyard.store.repositories.chat_appends import (
    AppendedEvents,
    AppendRequest,
    append_events,
    database_time,
)
from toolyard.store.repositories.chat_rows import (
    SELECT_CHATS,
    ChatQuota,
    ChatUsage,
    PreparedEvent,
    build_search_conditions,
    chat_from_row,
    chat_usage,
    chat_values,
    event_from_row,
    find_branch_end,
    read_events,
    read_latest_events,
    read_payloads,
    read_turn_tree,
)
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction, transaction_by_key
from toolyard.store.sql.tables import approvals, chats
from toolyard.store.sql.write_batcher import WriteBatcher
from toolyard.types.chat import BranchSwitch, Chat, ChatEvent, Fork, NewChatEvent, TurnState, TurnTree

__all__ = ["SqlChatStore"]

_SELECT_CHAT = SELECT_CHATS.where(chats.c.id == bindparam("chat_id"), chats.c.owner == bindparam("of"))
_MAX_PAGE_ROWS = 10_000
_MAX_SIGNAL_CHARACTERS = 6_000
"""Maximum length of the ids in one signal."""
_MAX_BODY_CHARACTERS_PER_STEP = 16_000
"""Length of an event from which on other tasks run before the next one is decoded."""
_RETRY_SECONDS = 1.0
"""Pause between attempts to read stop requests while the database is unavailable."""

_log = logging.getLogger("toolyard.store.chats")


class SqlChatStore(Repository):
    """Storage of chats and their events. Methods that take an owner ignore the chats of other users.

    Concurrent appends share transactions. A runner's claim is checked in the transaction that appends, so a
    runner that lost its chat cannot write to it, whatever it assumes.
    """

    def __init__(self, executor: DatabaseExecutor, signals: Signals, clock: Callable[[], float]) -> None:
        super().__init__(executor)
        self.quota = ChatQuota()
        self.attachments = SqlAttachmentStore(executor, clock)
        self._signals = signals
        self._clock = clock
        self.get_revision = partial(signals.revision, CHATS_CHANNEL)
        """Returns a value that differs after each change of a chat, apart from events that this process
        appends; None while changes may be missed."""
        self.event_waiters = ChatEventWaiters(executor, signals)
        self.wait_for_events = self.event_waiters.wait
        self._append_batcher: WriteBatcher[AppendRequest, AppendedEvents | ChatError | None] = WriteBatcher(
            self._write_batch, attrgetter("size_bytes")
        )

    async def close(self) -> None:
        """Write queued events, and end all waits."""
        # Writes first: events that are still queued reach the waiters before their waits end.
        await self._append_batcher.close()
        await self.event_waiters.close()

    # Chats.

    @transaction
    def create(self, connection: Connection, chat: Chat) -> None:
        """Create a chat. Raises Conflict if the id exists, and ChatQuotaExceeded."""
        statement = chats.insert().values(
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
        self.quota.check(chat_usage(connection, chat.owner), new_chat=True)
        connection.execute(statement)

    async def usage(self, owner: str) -> ChatUsage:
        """Return the number and size of a user's chats. Raises StoreError."""
        return await self._executor.read(lambda connection: chat_usage(connection, owner))

    async def quota_notice(self, owner: str) -> str | None:
        """Return a warning if a user's chats are close to a limit; otherwise None. Raises StoreError."""
        return self.quota.notice(await self.usage(owner))

    async def get(self, owner: str, chat_id: str) -> Chat | None:
        params = {"chat_id": chat_id, "of": owner}
        return await self._executor.fetch_one(_SELECT_CHAT, chat_from_row, params)

    async def list_chats(
        self,
        owner: str,
        *,
        search_text: str | None = None,
        before: tuple[float, str] | None = None,
        limit: int = 50,
    ) -> Sequence[Chat]:
        """Return the owner's chats, most recently changed first.

        ``search_text`` is searched in titles and messages. ``before`` is ``(updated_at, id)`` of the last
        chat of the previous page.
        """
        query = SELECT_CHATS.where(chats.c.owner == owner, *build_search_conditions(search_text or ""))
        if before is not None:
            at, chat_id = before
            # The id decides between chats of the same time. Paging by time alone would skip or repeat some at
            # a page boundary.
            same_time = and_(chats.c.updated_at == at, chats.c.id < chat_id)
            query = query.where(or_(chats.c.updated_at < at, same_time))
        query = query.order_by(chats.c.updated_at.desc(), chats.c.id.desc()).limit(_clamp_limit(limit))
        return await self._executor.fetch_all(query, chat_from_row)

    async def change(self, chat: Chat) -> bool:
        """Store title, agent, model and choice of the owner's chat, nothing else.

        Return False if there is no such chat.
        """
        statement = update(chats).where(_owner_condition(chat.owner, chat.id)).values(**chat_values(chat))

        def change_chat(connection: Connection) -> bool:
            is_changed = connection.execute(statement).rowcount > 0
            if is_changed:
                self._signals.notify(connection, CHATS_CHANNEL, chat.id)
            return is_changed

        return await self._executor.write(change_chat)

    async def delete(self, owner: str, chat_id: str) -> bool:
        statement = delete(chats).where(_owner_condition(owner, chat_id))
        return await self._signals.execute(statement, CHATS_CHANNEL, chat_id) > 0

    # Events.

    async def list_events(self, chat_id: str, *, after: int = 0, limit: int = 1_000) -> Sequence[ChatEvent]:
        """Return events in order. The caller has checked that the user owns the chat."""
        rows = await self._executor.read_or_default(
            lambda c: read_events(c, chat_id, after, _clamp_limit(limit)), ()
        )
        return await _decode_events(rows)

    async def list_latest_events(
        self, chat_id: str, last_turn: int, *, before: int | None = None, limit: int = 200
    ) -> Sequence[ChatEvent]:
        """Return the last ``limit`` events before a sequence number in the branch to a turn, in order, for a
        page that opens at the end.

        The result starts with the first event of a turn, so it may contain more events than ``limit``, or
        slightly fewer.
        """
        rows = await self._executor.read_or_default(
            lambda c: read_latest_events(c, chat_id, last_turn, before, _clamp_limit(limit)), ()
        )
        return await _decode_events(rows)

    async def get_turn_tree(self, chat_id: str) -> TurnTree:
        """Return the turns of a chat."""
        return await self._executor.read_or_default(lambda c: read_turn_tree(c, chat_id), TurnTree())

    async def find_branch_end(self, chat_id: str, before: int) -> int:
        """Return the last turn of the branch that was chosen before an event; 0 if there was none."""
        return await self._executor.read_or_default(lambda c: find_branch_end(c, chat_id, before), 0)

    async def get_payload(self, chat_id: str, seq: int) -> bytes | None:
        """Return the data stored beside an event."""
        return (await self.get_payloads(chat_id, [seq])).get(seq)

    async def get_payloads(self, chat_id: str, seqs: Sequence[int]) -> Mapping[int, bytes]:
        """Return the data stored beside events, by sequence number; events without data are omitted."""
        return await self._executor.read_or_default(
            lambda connection: read_payloads(connection, chat_id, seqs), dict[int, bytes]()
        )

    # Turns.

    async def claim(
        self,
        chat_id: str,
        runner: str,
        expected_state: TurnState,
        events: Sequence[NewChatEvent],
        *,
        new_turn: bool,
        fork: Fork | None = None,
    ) -> Sequence[ChatEvent] | None:
        """Take a chat that is in ``expected_state`` and append events to it; with ``new_turn``, the first one
        starts a turn, at ``fork`` or after the last turn of the chosen branch.

        Return None if the chat is in another state or does not exist. Raises ChatChanged if another branch
        was chosen since the fork was made.
        """
        return await self._submit_append(
            chat_id, events, runner=runner, expected_state=expected_state, new_turn=new_turn, fork=fork
        )

    async def switch_branch(
        self,
        chat_id: str,
        runner: str,
        turn: int,
        *,
        deleted_turns: Sequence[int] = (),
        fork: Fork | None = None,
    ) -> bool:
        """Choose the branch that ends with a turn, and delete other turns.

        Return False if a turn is running or waiting. Raises ChatChanged if another branch was chosen since
        the fork was made.
        """
        switch = NewChatEvent.from_data(BranchSwitch())
        idle = TurnState.IDLE
        written = await self._submit_append(
            chat_id,
            [switch],
            runner=runner,
            expected_state=idle,
            next_state=idle,
            switch_to=turn,
            deleted_turns=deleted_turns,
            fork=fork,
        )
        return written is not None

    async def append(
        self,
        chat_id: str,
        runner: str,
        events: Sequence[NewChatEvent],
        *,
        next_state: TurnState = TurnState.RUNNING,
    ) -> Sequence[ChatEvent]:
        """Append events durably to a chat that the runner holds. Raises NotHeld.

        A ``next_state`` other than RUNNING releases the chat in the same write. Concurrent appends share one
        write.
        """
        return await self._submit_append(chat_id, events, runner=runner, next_state=next_state) or ()

    async def append_without_claim(self, chat_id: str, events: Sequence[NewChatEvent]) -> Sequence[ChatEvent]:
        """Append a user's answers to the last turn, whichever runner holds the chat. Raises NoSuchChat."""
        return await self._submit_append(chat_id, events) or ()

    async def _submit_append(
        self, chat_id: str, events: Sequence[NewChatEvent], **options: Any
    ) -> Sequence[ChatEvent] | None:
        prepared = [PreparedEvent.from_new_event(event) for event in events]
        size_bytes = sum(len(each.body) + len(each.payload) for each in prepared)
        request = AppendRequest(chat_id, prepared, size_bytes, self._clock(), **options)
        outcome = await self._append_batcher.put(request)
        if isinstance(outcome, ChatError):
            raise outcome
        return None if outcome is None else outcome.events

    async def _write_batch(
        self, requests: Sequence[AppendRequest]
    ) -> Sequence[AppendedEvents | ChatError | None]:
        now = self._clock()

        def append_batch(connection: Connection) -> list[AppendedEvents | ChatError | None]:
            outcomes = append_events(connection, requests, now, self.quota)
            # Not to this process: its waiters get the events themselves below, without reading the table.
            # With SQLite, other processes notice that the file changed.
            if connection.dialect.name == "postgresql":
                for ids in _pack_changed_ids(requests, outcomes):
                    self._signals.notify(connection, CHATS_CHANNEL, ids, include_local=False)
            return outcomes

        outcomes = await self._executor.write(append_batch)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, AppendedEvents) and outcome.events:
                self.event_waiters.publish(request.chat_id, outcome)
        return outcomes

    @transaction
    def record_heartbeat(self, connection: Connection, runner: str) -> None:
        """Record that the runner is alive, for all chats that it holds."""
        statement = update(chats).where(chats.c.runner == runner)
        connection.execute(statement.values(beat_at=database_time(connection, self._clock())))

    async def find_abandoned(self, is_gone: Callable[[str, float], bool]) -> Sequence[Chat]:
        """Return running chats for which ``is_gone(runner, seconds since its last heartbeat)`` is true."""

        def read_running_chats(connection: Connection) -> Sequence[Any]:
            # The absolute value, since the clock may have been set back: a heartbeat far in the future is as
            # old as one far in the past.
            silence = func.abs(database_time(connection, self._clock()) - chats.c.beat_at).label("silence")
            running = chats.c.state == TurnState.RUNNING.value
            query = SELECT_CHATS.add_columns(chats.c.runner, silence).where(
                chats.c.runner.is_not(None), running
            )
            return connection.execute(query.order_by(chats.c.id)).all()

        rows = await self._executor.read(read_running_chats)
        return [chat_from_row(row) for row in rows if is_gone(row.runner, float(row.silence or 0.0))]

    async def find_resumable(self) -> Sequence[Chat]:
        """Return waiting chats that have no unanswered approval."""
        open_approvals = select(approvals.c.id).where(
            approvals.c.chat_id == chats.c.id, approvals.c.answered_at.is_(None)
        )
        query = SELECT_CHATS.where(
            chats.c.state == TurnState.WAITING.value, ~open_approvals.exists()
        ).order_by(chats.c.id)
        return await self._executor.fetch_all(query, chat_from_row)

    @transaction_by_key(False)
    def take_over(self, connection: Connection, chat_id: str, runner: str, previous_runner: str) -> bool:
        """Hold a running chat in place of a dead runner. Return False if another process took it first."""
        running = (chats.c.id == chat_id) & (chats.c.state == TurnState.RUNNING.value)
        # Compare and swap: of several replicas that found the same dead runner, one gets the chat.
        statement = update(chats).where(running, chats.c.runner == previous_runner)
        statement = statement.values(runner=runner, beat_at=database_time(connection, self._clock()))
        return connection.execute(statement).rowcount > 0

    async def get_runner(self, chat_id: str) -> str | None:
        """Return the id of the runner that holds the chat."""
        query = select(chats.c.runner).where(chats.c.id == chat_id)
        return await self._executor.fetch_value(query)

    # Stop requests. Each is a column, stored until the runner releases the chat; the signal only speeds it
    # up. So a runner that missed the signal still finds the request.

    async def request_stop(self, chat_id: str) -> None:
        """Notify the runner that holds the chat, in any process."""
        is_held = (chats.c.id == chat_id) & chats.c.runner.is_not(None)
        statement = update(chats).where(is_held).values(stop_asked=True)
        await self._signals.execute(statement, CHAT_STOPS_CHANNEL, chat_id)

    async def listen_for_stop_requests(self) -> AsyncGenerator[str]:
        """Yield ids of chats to stop, possibly twice: from the signal and from the table. Ends on close."""
        known: frozenset[str] = frozenset()
        async with aclosing(self._signals.listen(CHAT_STOPS_CHANNEL)) as listening:
            async for message in listening:
                requested = frozenset({message}) if message else await self._find_stop_requests()
                for chat_id in sorted(requested if message else requested - known):
                    yield chat_id
                known = known | requested if message else requested

    async def _find_stop_requests(self) -> frozenset[str]:
        query = select(chats.c.id).where(chats.c.runner.is_not(None), chats.c.stop_asked.is_(True))
        while True:
            try:
                chat_ids = await self._executor.read(lambda c: c.execute(query).scalars().all())
                return frozenset(chat_ids)
            except StoreError as error:
                _log.warning("cannot read stop requests of chats; retrying: %s", error.cause)
                await asyncio.sleep(_RETRY_SECONDS)


def _owner_condition(owner: str, chat_id: str) -> Any:
    return (chats.c.id == chat_id) & (chats.c.owner == owner)


def _clamp_limit(limit: int) -> int:
    return max(0, min(limit, _MAX_PAGE_ROWS))


def _pack_changed_ids(
    requests: Sequence[AppendRequest], outcomes: Sequence[AppendedEvents | ChatError | None]
) -> list[str]:
    """Pack the ids of chats with new events into as few texts as possible, each short enough for a signal."""
    pairs = zip(requests, outcomes, strict=True)
    changed = {
        request.chat_id: None
        for request, outcome in pairs
        if isinstance(outcome, AppendedEvents) and outcome.events
    }
    texts: list[str] = []
    for chat_id in changed:
        if texts and len(texts[-1]) + len(chat_id) < _MAX_SIGNAL_CHARACTERS:
            texts[-1] += f" {chat_id}"
        else:
            texts.append(chat_id)
    return texts


async def _decode_events(rows: Iterable[Any]) -> list[ChatEvent]:
    events: list[ChatEvent] = []
    for row in rows:
        events.append(event_from_row(row))
        if len(row.body) > _MAX_BODY_CHARACTERS_PER_STEP:
            await asyncio.sleep(0)  # Arguments and results of 256 KB take milliseconds.
    return events
