"""The turns that run in this process: begun, continued, stopped, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from toolyard.agents.chat.chat_backend import ChatBackend
from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NotHeld
from toolyard.agents.chat.heartbeat import PROCESS_GONE, RunnerHeartbeat
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn import Turn, TurnContext, close_turn
from toolyard.agents.chat.turn_end import TurnEnd
from toolyard.agents.chat.turn_log import read_turn_events
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.types.chat import Chat, NewChatEvent, TurnOutcome, TurnState

__all__ = ["STOPPED_BY_USER", "TurnRunner"]

log = logging.getLogger("toolyard.chat")

STOPPED_BY_USER = TurnEnd(TurnOutcome.STOPPED)

_CLOSE_TIMEOUT_SECONDS = 15.0
"""Seconds that turns have to end when the process does."""
_STOP_TIMEOUT_SECONDS = 10.0
"""Seconds that whoever stops a turn waits for its end."""


class TurnRunner:
    """At most one turn a chat, whichever process it runs in: the store sees to that."""

    def __init__(self, context: TurnContext, backend: ChatBackend) -> None:
        self._context = context
        self._backend = backend
        self._active_turns: dict[str, tuple[Turn, asyncio.Task[None]]] = {}
        self._starting_chat_ids: set[str] = set()
        self._closed = False
        self._heartbeat = RunnerHeartbeat(context, self._is_running_here, self._stop_local_turn)

    async def open(self) -> None:
        """Keep house from now on."""
        await self._heartbeat.open()

    async def close(self) -> None:
        """End all turns as interrupted. Bounded."""
        self._closed = True
        await self._heartbeat.close()
        tasks = [task for _, task in self._active_turns.values()]
        for turn, _ in list(self._active_turns.values()):
            turn.stop(PROCESS_GONE)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_SECONDS)

    async def begin(self, chat: Chat, tool_set: ToolSet, events: Sequence[NewChatEvent]) -> int:
        """Begin a turn with these events; its number. Raises ChatBusy or ChatRefused."""
        return await self._start_turn(chat, tool_set, TurnState.IDLE, events)

    async def resume(self, chat: Chat) -> None:
        """Continue a turn whose approvals are answered. Somebody else may have done so already."""
        try:
            toolbox = await self._backend.load_tool_set(chat)
        except ChatRefused as refused:
            # It cannot go on: that is how the turn ends, and no fault of whoever said yes.
            await self._end_waiting_turn(chat, TurnEnd(TurnOutcome.FAILED, refused.cause, refused.hint))
            return
        with contextlib.suppress(ChatBusy):
            await self._start_turn(chat, toolbox, TurnState.WAITING, ())

    async def _start_turn(
        self, chat: Chat, tool_set: ToolSet, expected_state: TurnState, events: Sequence[NewChatEvent]
    ) -> int:
        if self._closed:
            raise ChatRefused("Toolyard is stopping", hint="try again in a moment")
        # Whoever asked may leave meanwhile; the turn that was claimed must run all the same.
        work = self._claim_and_run(chat, tool_set, expected_state, events)
        return await asyncio.shield(asyncio.get_running_loop().create_task(work))

    async def _claim_and_run(
        self, chat: Chat, tool_set: ToolSet, expected_state: TurnState, events: Sequence[NewChatEvent]
    ) -> int:
        self._starting_chat_ids.add(chat.id)
        try:
            claimed = await self._context.store.claim(
                chat.id,
                self._context.runner,
                expected_state,
                events,
                new_turn=expected_state is TurnState.IDLE,
            )
            if claimed is None:
                raise ChatBusy("a turn is running in this chat, or waits for you", hint="stop it, or answer")
            number = claimed[0].seq if claimed else chat.turn
            turn = Turn(self._context, chat, number, tool_set)
            task = asyncio.get_running_loop().create_task(turn.run(), name=f"toolyard-turn:{chat.id}")
            self._active_turns[chat.id] = (turn, task)
            task.add_done_callback(lambda done: self._on_turn_done(chat.id, turn, done))
            if self._closed:
                turn.stop(PROCESS_GONE)
            return number
        finally:
            self._starting_chat_ids.discard(chat.id)

    def _on_turn_done(self, chat_id: str, turn: Turn, task: asyncio.Task[None]) -> None:
        if (found := self._active_turns.get(chat_id)) is not None and found[0] is turn:
            del self._active_turns[chat_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a turn of chat %s failed", chat_id, exc_info=error)

    # Stopping.

    async def stop(self, chat: Chat, reason: TurnEnd) -> None:
        """Stop the turn of a chat, wherever it runs or waits; where it is here, it is over afterwards."""
        found = self._active_turns.get(chat.id)
        if found is not None:
            found[0].stop(reason)
            await asyncio.wait([found[1]], timeout=_STOP_TIMEOUT_SECONDS)
        elif chat.state is not TurnState.WAITING or not await self._end_waiting_turn(chat, reason):
            await self._context.store.request_stop(chat.id)

    async def _end_waiting_turn(self, chat: Chat, end: TurnEnd) -> bool:
        """End a turn that waits for approvals, which nobody needs to give any more. False: it goes on."""
        desk = self._context
        self._starting_chat_ids.add(chat.id)
        try:
            if await desk.store.claim(chat.id, desk.runner, TurnState.WAITING, (), new_turn=False) is None:
                return False
            standing = TurnSnapshot.from_events(await read_turn_events(desk.store, chat.id, chat.turn))
            for approval in standing.pending_approval_ids:
                await desk.approvals.answer(chat.owner, approval, yes=False, at=desk.clock(), grant=None)
            # It may be deleted at the same time.
            with contextlib.suppress(NotHeld):
                await close_turn(desk, chat.id, chat.turn, end)
            return True
        finally:
            self._starting_chat_ids.discard(chat.id)

    def _is_running_here(self, chat_id: str) -> bool:
        return chat_id in self._active_turns or chat_id in self._starting_chat_ids

    def _stop_local_turn(self, chat_id: str) -> None:
        if (found := self._active_turns.get(chat_id)) is not None:
            found[0].stop(STOPPED_BY_USER)
