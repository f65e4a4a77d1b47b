"""The turns that run in this process: begun, continued, stopped, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from toolyard.agents.chat.chat_backend import ChatYard
from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NotHeld
from toolyard.agents.chat.heartbeat import LOST, Housekeeping
from toolyard.agents.chat.tool_set import Toolbox
from toolyard.agents.chat.turn import Desk, Turn, close_turn
from toolyard.agents.chat.turn_end import Ended
from toolyard.agents.chat.turn_log import read_turn
from toolyard.agents.chat.turn_snapshot import Standing
from toolyard.types.chat import Chat, Ending, NewEvent, TurnState

__all__ = ["STOPPED", "Running"]

log = logging.getLogger("toolyard.chat")

STOPPED = Ended(Ending.STOPPED)

_CLOSING = 15.0
"""Seconds that turns have to end when the process does."""
_STOPPING = 10.0
"""Seconds that whoever stops a turn waits for its end."""


class Running:
    """At most one turn a chat, whichever process it runs in: the store sees to that."""

    def __init__(self, desk: Desk, yard: ChatYard) -> None:
        self._desk = desk
        self._yard = yard
        self._turns: dict[str, tuple[Turn, asyncio.Task[None]]] = {}
        self._starting: set[str] = set()
        self._closed = False
        self._house = Housekeeping(desk, self._is_here, self._stop_here)

    async def open(self) -> None:
        """Keep house from now on."""
        await self._house.open()

    async def close(self) -> None:
        """End all turns as interrupted. Bounded."""
        self._closed = True
        await self._house.close()
        tasks = [task for _, task in self._turns.values()]
        for turn, _ in list(self._turns.values()):
            turn.stop(LOST)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSING)

    async def begin(self, chat: Chat, toolbox: Toolbox, events: Sequence[NewEvent]) -> int:
        """Begin a turn with these events; its number. Raises ChatBusy or ChatRefused."""
        return await self._start(chat, toolbox, TurnState.IDLE, events)

    async def go_on(self, chat: Chat) -> None:
        """Continue a turn whose approvals are answered. Somebody else may have done so already."""
        try:
            toolbox = await self._yard.toolbox(chat)
        except ChatRefused as refused:
            # It cannot go on: that is how the turn ends, and no fault of whoever said yes.
            await self._end_waiting(chat, Ended(Ending.FAILED, refused.cause, refused.hint))
            return
        with contextlib.suppress(ChatBusy):
            await self._start(chat, toolbox, TurnState.WAITING, ())

    async def _start(self, chat: Chat, toolbox: Toolbox, was: TurnState, events: Sequence[NewEvent]) -> int:
        if self._closed:
            raise ChatRefused("Toolyard is stopping", hint="try again in a moment")
        # Whoever asked may leave meanwhile; the turn that was claimed must run all the same.
        work = self._claim(chat, toolbox, was, events)
        return await asyncio.shield(asyncio.get_running_loop().create_task(work))

    async def _claim(self, chat: Chat, toolbox: Toolbox, was: TurnState, events: Sequence[NewEvent]) -> int:
        self._starting.add(chat.id)
        try:
            claimed = await self._desk.store.claim(
                chat.id, self._desk.runner, was, events, new_turn=was is TurnState.IDLE
            )
            if claimed is None:
                raise ChatBusy("a turn is running in this chat, or waits for you", hint="stop it, or answer")
            number = claimed[0].seq if claimed else chat.turn
            turn = Turn(self._desk, chat, number, toolbox)
            task = asyncio.get_running_loop().create_task(turn.run(), name=f"toolyard-turn:{chat.id}")
            self._turns[chat.id] = (turn, task)
            task.add_done_callback(lambda done: self._done(chat.id, turn, done))
            if self._closed:
                turn.stop(LOST)
            return number
        finally:
            self._starting.discard(chat.id)

    def _done(self, chat_id: str, turn: Turn, task: asyncio.Task[None]) -> None:
        if (found := self._turns.get(chat_id)) is not None and found[0] is turn:
            del self._turns[chat_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a turn of chat %s failed", chat_id, exc_info=error)

    # Stopping.

    async def stop(self, chat: Chat, why: Ended) -> None:
        """Stop the turn of a chat, wherever it runs or waits; where it is here, it is over afterwards."""
        found = self._turns.get(chat.id)
        if found is not None:
            found[0].stop(why)
            await asyncio.wait([found[1]], timeout=_STOPPING)
        elif chat.state is not TurnState.WAITING or not await self._end_waiting(chat, why):
            await self._desk.store.ask_to_stop(chat.id)

    async def _end_waiting(self, chat: Chat, ended: Ended) -> bool:
        """End a turn that waits for approvals, which nobody needs to give any more. False: it goes on."""
        desk = self._desk
        self._starting.add(chat.id)
        try:
            if await desk.store.claim(chat.id, desk.runner, TurnState.WAITING, (), new_turn=False) is None:
                return False
            standing = Standing.of(await read_turn(desk.store, chat.id, chat.turn))
            for approval in standing.unanswered:
                await desk.approvals.answer(chat.owner, approval, yes=False, at=desk.clock(), grant=None)
            # It may be deleted at the same time.
            with contextlib.suppress(NotHeld):
                await close_turn(desk, chat.id, chat.turn, ended)
            return True
        finally:
            self._starting.discard(chat.id)

    def _is_here(self, chat_id: str) -> bool:
        return chat_id in self._turns or chat_id in self._starting

    def _stop_here(self, chat_id: str) -> None:
        if (found := self._turns.get(chat_id)) is not None:
            found[0].stop(STOPPED)
