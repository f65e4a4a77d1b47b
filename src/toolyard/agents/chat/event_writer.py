"""Writes down what happens in a turn, in order, without letting a model or a tool wait for the disk."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.sanitize import clean
from toolyard.agents.chat.storage import ChatStore
from toolyard.errors import ToolyardError
from toolyard.types.chat import PIECES, Event, Kind, NewEvent, TurnState

__all__ = ["Scribe"]

_GATHER = 0.03
"""Seconds for which pieces are gathered after a write; the first goes at once."""
_PROGRESS = 0.1
"""Seconds between two reports on how far a call is."""
_MESSAGE = 500


class Scribe:
    """Appends to a chat that a runner holds. Pieces and progress are gathered, everything else is on the disk
    when ``append`` returns, even for whoever was cancelled while waiting for it."""

    def __init__(self, store: ChatStore, chat_id: str, runner: str) -> None:
        self.chat_id = chat_id
        self._store = store
        self._runner = runner
        self._turn = asyncio.Lock()
        self._pieces: list[NewEvent] = []
        self._progress: dict[str, NewEvent] = {}
        self._told: dict[str, float] = {}
        self._gathering: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[Sequence[Event]]] = set()
        self._failure: ToolyardError | None = None
        self._settled = False

    def piece(self, kind: Literal[Kind.TEXT, Kind.REASONING], part: str, delta: str) -> None:
        """Something that a model said or thought. Raises what an earlier write raised."""
        self._check()
        delta = clean(delta)
        last = self._pieces[-1] if self._pieces else None
        if last is not None and (last.kind, last.part) == (kind, part):
            delta = last.body["delta"] + delta
            self._pieces.pop()
        self._pieces.append(NewEvent(kind, {"delta": delta}, part))
        self._gather()

    def progress(self, call_id: str, params: Mapping[str, Any]) -> None:
        """How far a call is. What comes faster than anybody reads is left out, the newest stays."""
        message: object = params.get("message")
        body = {
            "id": call_id,
            "progress": _number(params.get("progress")) or 0,
            "total": _number(params.get("total")),
            "message": clean(message[:_MESSAGE]) if isinstance(message, str) else None,
        }
        self._progress[call_id] = NewEvent(Kind.PROGRESS, body, call_id)
        self._gather()

    async def append(
        self, events: Sequence[NewEvent], *, then: TurnState = TurnState.RUNNING
    ) -> Sequence[Event]:
        """Write these, after the pieces that came before. Raises NotHeld, or what the store raises."""
        if self._settled:
            # Whoever ends the turn writes what it lacks; the same from others would stand there twice.
            raise NotHeld("the turn is ending")
        self._check()
        for event in events:
            if event.kind is Kind.RESULT:
                self._progress.pop(event.part, None)
        # Pieces that these take the place of need not be written at all.
        replaced = {event.part for event in events if event.part and event.kind not in PIECES}
        before = [piece for piece in self._pieces if piece.part not in replaced]
        self._pieces.clear()
        writing = asyncio.get_running_loop().create_task(self._write([*before, *events], then))
        self._writing.add(writing)
        writing.add_done_callback(self._wrote)
        # A write that began is seen through, and what follows it waits.
        written = await asyncio.shield(writing)
        return written[len(before) :]

    async def settle(self) -> None:
        """Write what was gathered, wait until nothing is being written, and take nothing more. Raises what a
        write raised."""
        self._settled = True
        if self._writing:
            await asyncio.wait(self._writing)
        async with self._turn:
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            self._progress.clear()
        self._check()
        if pieces := self._take_pieces():
            await self._write(pieces, TurnState.RUNNING)

    def _wrote(self, writing: asyncio.Task[Sequence[Event]]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            # Whoever waited may be gone; the failure is kept for whoever comes next.
            writing.exception()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _write(self, events: Sequence[NewEvent], then: TurnState) -> Sequence[Event]:
        async with self._turn:
            try:
                return await self._store.append(self.chat_id, self._runner, events, then=then)
            except ToolyardError as error:
                self._failure = error
                raise

    def _gather(self) -> None:
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.get_running_loop().create_task(self._gathered())

    async def _gathered(self) -> None:
        while self._pieces or self._progress:
            async with self._turn:
                events = [*self._take_pieces(), *self._due()]
                if events:
                    try:
                        await self._store.append(self.chat_id, self._runner, events)
                    except ToolyardError as error:
                        # Whoever has the next piece, or something to append, hears of it.
                        self._failure = error
                        return
            await asyncio.sleep(_GATHER)

    def _take_pieces(self) -> list[NewEvent]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _due(self) -> list[NewEvent]:
        now = asyncio.get_running_loop().time()
        due = [id for id in self._progress if now - self._told.get(id, -math.inf) >= _PROGRESS]
        self._told |= dict.fromkeys(due, now)
        return [self._progress.pop(id) for id in due]


def _number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
