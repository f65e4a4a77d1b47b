"""Writes down what happens in a turn, in order, without letting a model or a tool wait for the disk."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.sanitize import sanitize_text
from toolyard.agents.chat.storage import ChatStore
from toolyard.errors import ToolyardError
from toolyard.types.chat import TRANSIENT_KINDS, ChatEvent, Kind, NewChatEvent, TurnState

__all__ = ["EventWriter"]

_BATCH_INTERVAL_SECONDS = 0.03
"""Seconds for which pieces are gathered after a write; the first goes at once."""
_PROGRESS_INTERVAL_SECONDS = 0.1
"""Seconds between two reports on how far a call is."""
_MAX_PROGRESS_MESSAGE_CHARACTERS = 500


class EventWriter:
    """Appends to a chat that a runner holds. Pieces and progress are gathered, everything else is on the disk
    when ``append`` returns, even for whoever was cancelled while waiting for it."""

    def __init__(self, store: ChatStore, chat_id: str, runner: str) -> None:
        self.chat_id = chat_id
        self._store = store
        self._runner = runner
        self._write_lock = asyncio.Lock()
        self._pending_pieces: list[NewChatEvent] = []
        self._pending_progress: dict[str, NewChatEvent] = {}
        self._last_progress_at: dict[str, float] = {}
        self._batch_task: asyncio.Task[None] | None = None
        self._write_tasks: set[asyncio.Task[Sequence[ChatEvent]]] = set()
        self._failure: ToolyardError | None = None
        self._is_finished = False

    def add_piece(self, kind: Literal[Kind.TEXT, Kind.REASONING], part: str, delta: str) -> None:
        """Something that a model said or thought. Raises what an earlier write raised."""
        self._raise_earlier_failure()
        delta = sanitize_text(delta)
        last = self._pending_pieces[-1] if self._pending_pieces else None
        if last is not None and (last.kind, last.part) == (kind, part):
            delta = last.body["delta"] + delta
            self._pending_pieces.pop()
        self._pending_pieces.append(NewChatEvent(kind, {"delta": delta}, part))
        self._ensure_batch_task()

    def progress(self, call_id: str, params: Mapping[str, Any]) -> None:
        """How far a call is. What comes faster than anybody reads is left out, the newest stays."""
        message: object = params.get("message")
        body = {
            "id": call_id,
            "progress": _finite_number_or_none(params.get("progress")) or 0,
            "total": _finite_number_or_none(params.get("total")),
            "message": sanitize_text(message[:_MAX_PROGRESS_MESSAGE_CHARACTERS])
            if isinstance(message, str)
            else None,
        }
        self._pending_progress[call_id] = NewChatEvent(Kind.PROGRESS, body, call_id)
        self._ensure_batch_task()

    async def append(
        self, events: Sequence[NewChatEvent], *, next_state: TurnState = TurnState.RUNNING
    ) -> Sequence[ChatEvent]:
        """Write these, after the pieces that came before. Raises NotHeld, or what the store raises."""
        if self._is_finished:
            # Whoever ends the turn writes what it lacks; the same from others would stand there twice.
            raise NotHeld("the turn is ending")
        self._raise_earlier_failure()
        for event in events:
            if event.kind is Kind.RESULT:
                self._pending_progress.pop(event.part, None)
        # Pieces that these take the place of need not be written at all.
        replaced = {event.part for event in events if event.part and event.kind not in TRANSIENT_KINDS}
        before = [piece for piece in self._pending_pieces if piece.part not in replaced]
        self._pending_pieces.clear()
        writing = asyncio.get_running_loop().create_task(self._write_events([*before, *events], next_state))
        self._write_tasks.add(writing)
        writing.add_done_callback(self._on_write_done)
        # A write that began is seen through, and what follows it waits.
        written = await asyncio.shield(writing)
        return written[len(before) :]

    async def finish(self) -> None:
        """Write what was gathered, wait until nothing is being written, and take nothing more. Raises what a
        write raised."""
        self._is_finished = True
        if self._write_tasks:
            await asyncio.wait(self._write_tasks)
        async with self._write_lock:
            if self._batch_task is not None:
                self._batch_task.cancel()
                self._batch_task = None
            self._pending_progress.clear()
        self._raise_earlier_failure()
        if pieces := self._take_pieces():
            await self._write_events(pieces, TurnState.RUNNING)

    def _on_write_done(self, task: asyncio.Task[Sequence[ChatEvent]]) -> None:
        self._write_tasks.discard(task)
        if not task.cancelled():
            # Whoever waited may be gone; the failure is kept for whoever comes next.
            task.exception()

    def _raise_earlier_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

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
                        # Whoever has the next piece, or something to append, hears of it.
                        self._failure = error
                        return
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
