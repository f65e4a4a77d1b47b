"""Write a turn's events in order, without making a model stream or a tool call wait for each disk write.

Also builds the events that close a turn.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.result_event import failure_event
from toolyard.agents.chat.storable_values import sanitize_text
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.errors import ToolyardError
from toolyard.types.chat import (
    TRANSIENT_KINDS,
    CallProgress,
    ChatEvent,
    EventData,
    Kind,
    ModelMessage,
    ModelUsage,
    NewChatEvent,
    QuestionAnswer,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnOutcome,
    TurnState,
)

if TYPE_CHECKING:
    from toolyard.store.repositories.chats import SqlChatStore

__all__ = [
    "INTERRUPTED_MESSAGE",
    "TurnLog",
    "build_closing_events",
    "build_end_event",
    "read_chat_events",
    "read_turn",
]

_BATCH_INTERVAL_SECONDS = 0.03
"""Time for which streamed pieces are collected after a write. The first piece is written at once."""
_PROGRESS_INTERVAL_SECONDS = 0.1
"""Minimum time between two stored progress reports of a call."""
_MAX_PROGRESS_MESSAGE_CHARACTERS = 500
_EVENTS_PER_PAGE = 1_000

INTERRUPTED_MESSAGE = "interrupted; the outcome is unknown"

_UNFINISHED_CALL_MESSAGES: Mapping[str, str] = {
    TurnOutcome.STOPPED: "stopped by the user; the tool may have taken effect before",
    TurnOutcome.INTERRUPTED: INTERRUPTED_MESSAGE,
    TurnOutcome.LIMIT: "not called: a limit ended the turn",
    TurnOutcome.FAILED: "not finished: the turn failed",
    TurnOutcome.DONE: "not finished: the turn is over",
}

_UNAPPROVED_CALL_MESSAGE = "not called: the turn ended before the user approved or denied it"


class TurnLog:
    """Appends events to a turn that a runner holds, and knows the turn's state.

    Streamed pieces and progress are batched. All other events are durable when ``append`` returns, and are
    written even if the caller is cancelled meanwhile.
    """

    def __init__(
        self,
        store: SqlChatStore,
        chat_id: str,
        runner: str,
        on_usage: Callable[[ModelUsage], None] | None = None,
        snapshot: TurnSnapshot | None = None,
    ) -> None:
        """``on_usage`` is called with the usage of each model request once it is stored. ``snapshot`` is the
        state of the turn, if it is known; else ``load`` reads it."""
        self.chat_id = chat_id
        self.snapshot = snapshot or TurnSnapshot()
        """State of the turn while the runner holds it, without streamed pieces and progress."""
        self.is_released = False
        """True once the runner no longer holds the chat: the turn has ended, or waits for approvals."""
        self.payload_by_seq: dict[int, bytes] = {}
        self._store = store
        self._runner = runner
        self._on_usage = on_usage
        # One write at a time: the numbers of events are their order, and pieces must not overtake each other.
        self._write_lock = asyncio.Lock()
        self._pending_pieces: list[NewChatEvent] = []
        self._pending_progress: dict[str, NewChatEvent] = {}
        self._last_progress_at: dict[str, float] = {}
        self._batch_task: asyncio.Task[None] | None = None
        self._write_tasks: set[asyncio.Task[Sequence[ChatEvent]]] = set()
        self._failure: ToolyardError | None = None
        self._is_finished = False

    async def load(self, turn: int) -> None:
        """Read the events of the turn from the store."""
        self.snapshot = await read_turn(self._store, self.chat_id, turn)

    def add_piece(self, piece: TextDelta | ReasoningDelta, part: str) -> None:
        """Queue streamed text or reasoning of a model. Raises the error of an earlier write."""
        if self._failure is not None:
            raise self._failure
        delta = sanitize_text(piece.delta)
        last = self._pending_pieces[-1] if self._pending_pieces else None
        # Joined while they wait, so that a fast model costs one row for each write, not for each token.
        if last is not None and (last.kind, last.part) == (piece.event_kind, part):
            delta = last.body["delta"] + delta
            self._pending_pieces.pop()
        self._pending_pieces.append(NewChatEvent.from_data(type(piece)(delta), part))
        self._ensure_batch_task()

    def report_progress(self, call_id: str, params: Mapping[str, Any]) -> None:
        """Queue a progress report.

        Reports that follow each other too quickly are dropped, except the newest.
        """
        message: object = params.get("message")
        progress = CallProgress(
            call_id,
            _finite_number_or_none(params.get("progress")) or 0,
            _finite_number_or_none(params.get("total")),
            sanitize_text(message[:_MAX_PROGRESS_MESSAGE_CHARACTERS]) if isinstance(message, str) else None,
        )
        self._pending_progress[call_id] = NewChatEvent.from_data(progress, call_id)
        self._ensure_batch_task()

    async def append(
        self, events: Sequence[NewChatEvent], *, next_state: TurnState = TurnState.RUNNING
    ) -> Sequence[ChatEvent]:
        """Write events after all queued pieces. Raises NotHeld, or the store's errors."""
        if self._is_finished:
            # The end of the turn adds the missing events from the stored ones; a late append would duplicate
            # them.
            raise NotHeld("the turn is ending")
        if self._failure is not None:
            raise self._failure
        for event in events:
            # A report that was stored after the result would belong to a call that has ended.
            if event.kind is Kind.RESULT:
                self._pending_progress.pop(event.part, None)
        # A complete event replaces its pieces, so these need not be written at all.
        replaced_parts = {event.part for event in events if event.part and event.kind not in TRANSIENT_KINDS}
        pieces = [piece for piece in self._pending_pieces if piece.part not in replaced_parts]
        self._pending_pieces.clear()
        write_task = asyncio.get_running_loop().create_task(
            self._write_events([*pieces, *events], next_state)
        )
        self._write_tasks.add(write_task)
        write_task.add_done_callback(self._on_write_done)
        # Cancelling the caller must not abort a started write: its outcome would be unknown, and later writes
        # could overtake it.
        written = (await asyncio.shield(write_task))[len(pieces) :]
        if next_state is not TurnState.RUNNING:
            self.is_released = True
            return written
        self.snapshot = self.snapshot.apply(written)
        self.payload_by_seq |= {
            done.seq: new.payload for new, done in zip(events, written, strict=True) if new.payload
        }
        if self._on_usage is not None:
            for event in written:
                if isinstance(usage := event.data, ModelUsage):
                    self._on_usage(usage)
        return written

    async def append_data(self, *data: EventData) -> None:
        """Write events without part and payload, as ``append`` does."""
        if data:
            await self.append([NewChatEvent.from_data(each) for each in data])

    async def finish(self) -> None:
        """Write the queued pieces, wait for all writes, and reject further events.

        Raises the error of a write.
        """
        # Before the first await: from here on nothing may be added that the closing events do not take into
        # account.
        self._is_finished = True
        if self._write_tasks:
            await asyncio.wait(self._write_tasks)
        # Under the lock, so that a batch that is being written is not interrupted.
        async with self._write_lock:
            if self._batch_task is not None:
                self._batch_task.cancel()
                self._batch_task = None
            self._pending_progress.clear()
        if self._failure is not None:
            raise self._failure
        if pieces := self._take_pieces():
            await self._write_events(pieces, TurnState.RUNNING)

    def _on_write_done(self, task: asyncio.Task[Sequence[ChatEvent]]) -> None:
        self._write_tasks.discard(task)
        if not task.cancelled():
            # The caller may be cancelled and never read the exception. Reading it here avoids asyncio's
            # warning; the error is stored in ``_failure`` and raised by the next call.
            task.exception()

    async def _write_events(
        self, events: Sequence[NewChatEvent], next_state: TurnState
    ) -> Sequence[ChatEvent]:
        async with self._write_lock:
            try:
                return await self._store.append(self.chat_id, self._runner, events, next_state=next_state)
            except ToolyardError as error:
                self._failure = error
                raise

    def _ensure_batch_task(self) -> None:
        if self._batch_task is None or self._batch_task.done():
            self._batch_task = asyncio.get_running_loop().create_task(self._write_batches())

    async def _write_batches(self) -> None:
        while self._pending_pieces or self._pending_progress:
            async with self._write_lock:
                events = [*self._take_pieces(), *self._take_due_progress()]
                if events:
                    try:
                        await self._store.append(self.chat_id, self._runner, events)
                    except ToolyardError as error:
                        # The next ``add_piece`` or ``append`` raises it.
                        self._failure = error
                        return
            # Without the lock, so that complete events are written meanwhile.
            await asyncio.sleep(_BATCH_INTERVAL_SECONDS)

    def _take_pieces(self) -> list[NewChatEvent]:
        pieces, self._pending_pieces = self._pending_pieces, []
        return pieces

    def _take_due_progress(self) -> list[NewChatEvent]:
        now = asyncio.get_running_loop().time()
        due = [
            id
            for id in self._pending_progress
            if now - self._last_progress_at.get(id, -math.inf) >= _PROGRESS_INTERVAL_SECONDS
        ]
        self._last_progress_at |= dict.fromkeys(due, now)
        return [self._pending_progress.pop(id) for id in due]


def _finite_number_or_none(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


async def read_chat_events(
    store: SqlChatStore, chat_id: str, *, after: int = 0, before: int | None = None
) -> list[ChatEvent]:
    """Return the events of a chat after and before two sequence numbers, in order."""
    events: list[ChatEvent] = []
    while True:
        page = await store.list_events(chat_id, after=after, limit=_EVENTS_PER_PAGE)
        events += page if before is None else [event for event in page if event.seq < before]
        if len(page) < _EVENTS_PER_PAGE or (before is not None and page[-1].seq >= before):
            return events
        after = page[-1].seq


async def read_turn(store: SqlChatStore, chat_id: str, turn: int) -> TurnSnapshot:
    """Return the state of one turn."""
    events = await read_chat_events(store, chat_id, after=turn - 1)
    return TurnSnapshot.from_events(event for event in events if event.turn == turn)


def build_closing_events(snapshot: TurnSnapshot, end: TurnEnd, now: float) -> list[NewChatEvent]:
    """Return the events that complete a turn: partial answers, missing results, cancelled questions, and the
    end.

    Empty for a turn that has ended.
    """
    if snapshot.end is not None:
        return []
    return [
        *_complete_partial_answers(snapshot),
        *_close_open_items(snapshot, end.why),
        build_end_event(snapshot, end, now),
    ]


def build_end_event(snapshot: TurnSnapshot, end: TurnEnd, now: float) -> NewChatEvent:
    """Return the last event of a turn, with its duration."""
    seconds = 0.0 if snapshot.start is None else round(max(0.0, now - snapshot.at), 3)
    return NewChatEvent.from_data(replace(end, seconds=seconds))


def _complete_partial_answers(snapshot: TurnSnapshot) -> Iterator[NewChatEvent]:
    for answer in snapshot.answers:
        if answer.seq is None:
            # Tool calls still being streamed are not among the fragments, and were not made.
            yield NewChatEvent.from_data(ModelMessage(answer.text, answer.reasoning), answer.part)


def _close_open_items(snapshot: TurnSnapshot, outcome: str) -> Iterator[NewChatEvent]:
    for asked in snapshot.open_questions:
        yield NewChatEvent.from_data(QuestionAnswer(asked.question.id, "cancel"))
    # Model providers refuse a history in which a call has no result, so every open call gets one.
    # Otherwise the chat could not continue.
    for call in snapshot.open_calls:
        is_unanswered = call.approval is not None and call.approved is None
        yield failure_event(
            call.request.id,
            _UNAPPROVED_CALL_MESSAGE if is_unanswered else _UNFINISHED_CALL_MESSAGES[outcome],
            stopped=outcome == TurnOutcome.STOPPED,
        )
