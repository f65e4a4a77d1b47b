"""Turns that run in this process: start, resume, stop, and end them on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NotHeld
from toolyard.agents.chat.event_writer import read_turn_events
from toolyard.agents.chat.heartbeat import PROCESS_GONE, RunnerHeartbeat
from toolyard.agents.chat.tool_set import ChatBackend, ToolSet
from toolyard.agents.chat.turn import Turn, TurnServices, close_turn
from toolyard.agents.chat.turn_end import TurnEnd
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.types.chat import Chat, NewChatEvent, TurnOutcome, TurnState

__all__ = ["STOPPED_BY_USER", "TurnRunner"]

log = logging.getLogger("toolyard.chat")

STOPPED_BY_USER = TurnEnd(TurnOutcome.STOPPED)

_CLOSE_TIMEOUT_SECONDS = 15.0
"""Maximum time to wait for running turns when the process shuts down."""
_STOP_TIMEOUT_SECONDS = 10.0
"""Maximum time that a stop request waits for the turn's end."""


class TurnRunner:
    """Runs at most one turn per chat; the store enforces this across processes."""

    def __init__(self, context: TurnServices, backend: ChatBackend) -> None:
        self._context = context
        self._backend = backend
        self._active_turns: dict[str, tuple[Turn, asyncio.Task[None]]] = {}
        # Chats between claim and task creation. The heartbeat must not take them for abandoned.
        self._starting_chat_ids: set[str] = set()
        self._closed = False
        self._heartbeat = RunnerHeartbeat(context, self._is_running_here, self._stop_local_turn)

    async def open(self) -> None:
        """Start the heartbeat."""
        await self._heartbeat.open()

    async def close(self) -> None:
        """End all turns as interrupted. Takes bounded time."""
        self._closed = True
        await self._heartbeat.close()
        tasks = [task for _, task in self._active_turns.values()]
        for turn, _ in list(self._active_turns.values()):
            turn.stop(PROCESS_GONE)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_SECONDS)

    async def begin(self, chat: Chat, tool_set: ToolSet, events: Sequence[NewChatEvent]) -> int:
        """Start a turn with these events and return its number. Raises ChatBusy or ChatRefused."""
        return await self._start_turn(chat, tool_set, TurnState.IDLE, events)

    async def resume(self, chat: Chat) -> None:
        """Resume a turn whose approvals are answered, unless another process already has."""
        try:
            tool_set = await self._backend.load_tool_set(chat)
        except ChatRefused as refusal:
            # The turn cannot continue. It ends as failed, but the approval itself was valid, so nothing is
            # raised.
            await self._end_waiting_turn(chat, TurnEnd(TurnOutcome.FAILED, refusal.cause, refusal.hint))
            return
        with contextlib.suppress(ChatBusy):
            await self._start_turn(chat, tool_set, TurnState.WAITING, ())

    async def _start_turn(
        self, chat: Chat, tool_set: ToolSet, expected_state: TurnState, events: Sequence[NewChatEvent]
    ) -> int:
        if self._closed:
            raise ChatRefused("Toolyard is stopping", hint="try again in a moment")
        # The shield protects against cancellation of the request: a claimed turn must run, or the chat would
        # stay in RUNNING without a task.
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
                raise ChatBusy(
                    "a turn is already running in this chat, or waiting for your answer",
                    hint="stop it, or answer",
                )
            number = claimed[0].seq if claimed else chat.turn
            turn = Turn(self._context, chat, number, tool_set)
            task = asyncio.get_running_loop().create_task(turn.run(), name=f"toolyard-turn:{chat.id}")
            self._active_turns[chat.id] = (turn, task)
            task.add_done_callback(lambda done: self._on_turn_done(chat.id, turn, done))
            # ``close`` may have run during the claim, and did not know of this turn.
            if self._closed:
                turn.stop(PROCESS_GONE)
            return number
        finally:
            self._starting_chat_ids.discard(chat.id)

    def _on_turn_done(self, chat_id: str, turn: Turn, task: asyncio.Task[None]) -> None:
        # The chat may have a new turn by now: it is released in the database before this callback runs.
        if (active := self._active_turns.get(chat_id)) is not None and active[0] is turn:
            del self._active_turns[chat_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("chat %s: a turn failed", chat_id, exc_info=error)

    # Stopping.

    async def stop(self, chat: Chat, reason: TurnEnd) -> None:
        """Stop a chat's turn in any process, running or waiting.

        A turn of this process has ended on return.
        """
        active = self._active_turns.get(chat.id)
        if active is not None:
            turn, task = active
            turn.stop(reason)
            await asyncio.wait([task], timeout=_STOP_TIMEOUT_SECONDS)
        elif chat.state is not TurnState.WAITING or not await self._end_waiting_turn(chat, reason):
            await self._context.store.request_stop(chat.id)

    async def _end_waiting_turn(self, chat: Chat, end: TurnEnd) -> bool:
        """End a turn that waits for approvals and deny these.

        Return False if the turn is no longer waiting.
        """
        context = self._context
        self._starting_chat_ids.add(chat.id)
        try:
            if (
                await context.store.claim(chat.id, context.runner, TurnState.WAITING, (), new_turn=False)
                is None
            ):
                return False
            snapshot = TurnSnapshot.from_events(await read_turn_events(context.store, chat.id, chat.turn))
            # Only after the claim: from here on no other process can resume the turn, so an approval cannot
            # be denied here and used there.
            for approval_id in snapshot.pending_approval_ids:
                await context.approvals.answer(
                    chat.owner, approval_id, yes=False, at=context.clock(), grant=None
                )
            # The chat may be deleted concurrently.
            with contextlib.suppress(NotHeld):
                await close_turn(context, chat.id, chat.turn, end)
            return True
        finally:
            self._starting_chat_ids.discard(chat.id)

    def _is_running_here(self, chat_id: str) -> bool:
        return chat_id in self._active_turns or chat_id in self._starting_chat_ids

    def _stop_local_turn(self, chat_id: str) -> None:
        if (active := self._active_turns.get(chat_id)) is not None:
            active[0].stop(STOPPED_BY_USER)
