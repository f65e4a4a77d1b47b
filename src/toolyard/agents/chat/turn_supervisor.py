"""Turns that run in this process: start, resume, stop, and end them on shutdown.

In the background: heartbeats, stop requests from other processes, and the end of turns that another process
abandoned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Container, Coroutine, Sequence
from functools import partial
from typing import Any

from toolyard.agents.chat.errors import ChatBusy, ChatRefused, NotHeld
from toolyard.agents.chat.tool_set import ToolSet, ToolSetSource
from toolyard.agents.chat.turn import Turn, TurnServices, close_turn
from toolyard.agents.chat.turn_log import read_turn
from toolyard.agents.chat.turn_snapshot import TurnSnapshot
from toolyard.concurrency.lru_cache import LruCache
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import ToolyardError
from toolyard.transports.stdio.watchdog import has_ended, pid_namespace, process_start_time
from toolyard.types.agent import Agent
from toolyard.types.chat import Chat, Fork, NewChatEvent, TurnEnd, TurnOutcome, TurnState

__all__ = ["STOPPED_BY_USER", "TurnSupervisor", "create_runner_id", "is_runner_gone", "repeat_forever"]

log = logging.getLogger("toolyard.chat")

STOPPED_BY_USER = TurnEnd(TurnOutcome.STOPPED)

_CLOSE_TIMEOUT_SECONDS = 15.0
"""Maximum time to wait for running turns when the process shuts down."""
_STOP_TIMEOUT_SECONDS = 10.0
"""Maximum time that a stop request waits for the turn's end."""
_MAX_HEARTBEAT_GAP_SECONDS = 20.0
"""Gap between heartbeats after which the database is assumed to have been unavailable.

Other runners could not send heartbeats either, so they get the same time to do so before they count as gone.
"""
_RETRY_SECONDS = 1.0
"""Delay before the next attempt after a database error."""

_PROCESS_GONE = TurnEnd(
    TurnOutcome.INTERRUPTED,
    "the process that ran this turn has ended",
    "partial output is kept; retry runs the turn again",
)
_RUNNER_TIMEOUT_SECONDS = 30.0
"""Time without a heartbeat after which a runner on another machine counts as gone."""
_MAX_TURN_AGENTS = 1_000
"""Maximum number of remembered agents of turns."""


class TurnSupervisor:
    """Runs at most one turn per chat; the store enforces this across processes."""

    def __init__(
        self,
        context: TurnServices,
        tool_sets: ToolSetSource,
        *,
        heartbeat_interval_seconds: float = 10.0,
        on_first_turn_done: Callable[[Chat, int, ToolSet], None] | None = None,
    ) -> None:
        """The interval is the time between two heartbeats, and between two searches for abandoned turns.

        ``on_first_turn_done`` is called with the number of a chat's first turn when it has ended or waits,
        unless the process shuts down.
        """
        self._on_first_turn_done = on_first_turn_done
        self.context = context
        self._tool_sets = tool_sets
        self._active_turns: dict[str, tuple[Turn, asyncio.Task[None]]] = {}
        # Chats between claim and task creation. The heartbeat must not take them for abandoned.
        self._starting_chat_ids: set[str] = set()
        # Agents with which the last turn of a chat began, for turns that wait for an approval.
        self._turn_agents: LruCache[str, Agent | None] = LruCache(_MAX_TURN_AGENTS)
        self._closed = False
        self._heartbeat_interval_seconds = heartbeat_interval_seconds
        self._last_heartbeat_at = context.clock()
        self._grace_until = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """End abandoned turns, then start the background tasks. Raises the store's errors."""
        await self.end_abandoned_turns()
        self._last_heartbeat_at = self.context.clock()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(repeat_forever(self.send_heartbeat)),
            loop.create_task(repeat_forever(self._listen_for_stops)),
        ]

    async def close(self) -> None:
        """End all turns as interrupted. Takes bounded time."""
        self._closed = True
        background_tasks, self._tasks = self._tasks, []
        await cancel_tasks(background_tasks)
        tasks = [task for _, task in self._active_turns.values()]
        for turn, _ in list(self._active_turns.values()):
            turn.stop(_PROCESS_GONE)
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT_SECONDS)

    async def begin(
        self,
        chat: Chat,
        tool_set: ToolSet,
        events: Sequence[NewChatEvent],
        fork: Fork | None = None,
        *,
        is_allowed: bool = False,
    ) -> int:
        """Start a turn with these events and return its number.

        ``is_allowed`` says that the call among the events has just been found to need no approval. Raises
        ChatBusy, ChatRefused, or ChatChanged for a fork of another branch than the chosen one.
        """
        number = await _finish_always(
            self._claim_and_run(chat, tool_set, TurnState.IDLE, events, fork, is_allowed=is_allowed)
        )
        self._turn_agents[chat.id] = tool_set.agent
        return number

    async def resume(self, chat: Chat) -> None:
        """Resume a turn whose approvals are answered, unless another process already has."""
        try:
            tool_set = await self._tool_sets.load_tool_set(chat.owner, chat, self._turn_agents.get(chat.id))
        except ChatRefused as refusal:
            # The turn cannot continue. It ends as failed, but the approval itself was valid, so nothing is
            # raised.
            await self._end_waiting_turn(chat, TurnEnd(TurnOutcome.FAILED, refusal.cause, refusal.hint))
            return
        with contextlib.suppress(ChatBusy):
            await _finish_always(self._claim_and_run(chat, tool_set, TurnState.WAITING))

    async def _claim_and_run(
        self,
        chat: Chat,
        tool_set: ToolSet,
        expected_state: TurnState,
        events: Sequence[NewChatEvent] = (),
        fork: Fork | None = None,
        *,
        is_allowed: bool = False,
    ) -> int:
        if self._closed:
            raise ChatRefused("Toolyard is stopping", hint="try again in a moment")
        self._starting_chat_ids.add(chat.id)
        try:
            claimed = await self.context.store.claim(
                chat.id,
                self.context.runner,
                expected_state,
                events,
                new_turn=expected_state is TurnState.IDLE,
                fork=fork,
            )
            if claimed is None:
                raise ChatBusy()
            number = claimed[0].seq if claimed else chat.turn
            snapshot = TurnSnapshot.from_events(claimed) if claimed else None
            turn = Turn(self.context, chat, number, tool_set, snapshot, is_allowed=is_allowed)
            task = asyncio.get_running_loop().create_task(turn.run(), name=f"toolyard-turn:{chat.id}")
            self._active_turns[chat.id] = (turn, task)
            task.add_done_callback(partial(self._forget_turn, chat, number, turn, tool_set))
            # ``close`` may have run during the claim, and did not know of this turn.
            if self._closed:
                turn.stop(_PROCESS_GONE)
            return number
        finally:
            self._starting_chat_ids.discard(chat.id)

    async def switch_branch(self, chat: Chat, turn: int, deleted_turns: Sequence[int] = ()) -> None:
        """Choose the branch that ends with a turn, and delete other turns.

        Raises ChatBusy, and with ``deleted_turns`` ChatChanged if another branch was chosen meanwhile.
        """
        fork = Fork(0, chat.turn) if deleted_turns else None
        if not await self.context.store.switch_branch(
            chat.id, self.context.runner, turn, deleted_turns=deleted_turns, fork=fork
        ):
            raise ChatBusy()

    def _forget_turn(
        self, chat: Chat, number: int, turn: Turn, tool_set: ToolSet, task: asyncio.Task[None]
    ) -> None:
        # The chat may have a new turn by now: it is released in the database before this callback runs.
        if (active := self._active_turns.get(chat.id)) is not None and active[0] is turn:
            del self._active_turns[chat.id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("chat %s: a turn failed", chat.id, exc_info=error)
        # Only the first turn has the number 1: edited messages and retries begin later ones.
        elif number == 1 and self._on_first_turn_done is not None and not self._closed:
            self._on_first_turn_done(chat, number, tool_set)

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
            # Another process runs the turn, or has just taken it over, and is asked to stop it.
            await self.context.store.request_stop(chat.id)

    async def _end_waiting_turn(self, chat: Chat, end: TurnEnd) -> bool:
        """End a turn that waits for approvals and deny these.

        Return False if the turn is no longer waiting.
        """
        context = self.context
        self._starting_chat_ids.add(chat.id)
        try:
            if (
                await context.store.claim(chat.id, context.runner, TurnState.WAITING, (), new_turn=False)
                is None
            ):
                return False
            snapshot = await read_turn(context.store, chat.id, chat.turn)
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

    # Background tasks.

    async def end_abandoned_turns(self) -> None:
        """End every turn whose runner is gone. Raises the store's errors."""
        gone_runners: set[str] = set()
        in_grace_period = 0 < self._grace_until - self.context.clock() <= _MAX_HEARTBEAT_GAP_SECONDS

        def is_abandoned(runner: str, seconds: float) -> bool:
            # A turn held by this runner without a running task: storing its end failed earlier.
            if runner == self.context.runner or is_runner_gone(runner, 0.0 if in_grace_period else seconds):
                gone_runners.add(runner)
            return runner in gone_runners

        for chat in await self.context.store.find_abandoned(is_abandoned):
            if not self._is_running_here(chat.id):
                await self._end_abandoned_turn(chat, gone_runners)

    async def _end_abandoned_turn(self, chat: Chat, gone_runners: Container[str]) -> None:
        context = self.context
        runner = await context.store.get_runner(chat.id)
        # The turn may have ended or changed hands since the query.
        if runner is None or runner not in gone_runners or self._is_running_here(chat.id):
            return
        # Taking over is atomic and changes the runner. So the old process, if it lives after all, gets
        # NotHeld with its next write.
        if runner != context.runner and not await context.store.take_over(chat.id, context.runner, runner):
            return
        log.info("chat %s: ending an abandoned turn as interrupted", chat.id)
        # The chat may have been deleted meanwhile.
        with contextlib.suppress(NotHeld):
            await close_turn(context, chat.id, chat.turn, _PROCESS_GONE)

    async def send_heartbeat(self) -> None:
        """Wait for the interval, record that this process runs, and end the turns of those that do not."""
        await asyncio.sleep(self._heartbeat_interval_seconds)
        # In this order: the gap since our own last heartbeat must be known before other runners are judged by
        # theirs.
        await self.context.store.record_heartbeat(self.context.runner)
        now = self.context.clock()
        # A clock that jumped has the same effect here, and other processes on this machine see it too.
        if not 0.0 <= now - self._last_heartbeat_at <= _MAX_HEARTBEAT_GAP_SECONDS:
            self._grace_until = now + _MAX_HEARTBEAT_GAP_SECONDS
        self._last_heartbeat_at = now
        await self.end_abandoned_turns()

    async def _listen_for_stops(self) -> None:
        async for chat_id in self.context.store.listen_for_stop_requests():
            if (active := self._active_turns.get(chat_id)) is not None:
                active[0].stop(STOPPED_BY_USER)
        await asyncio.sleep(_RETRY_SECONDS)


async def _finish_always(start: Coroutine[Any, Any, int]) -> int:
    """Start a turn even if the request is cancelled: a chat that was claimed would stay in RUNNING without a
    task."""
    return await asyncio.shield(asyncio.get_running_loop().create_task(start))


async def repeat_forever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call ``work`` in an endless loop; a temporary database failure is logged and retried."""
    while True:
        try:
            await work()
        except ToolyardError as error:
            log.warning("background work for chats failed, retrying: %s", error.cause)
            await asyncio.sleep(_RETRY_SECONDS)
        except Exception:
            # Boundary of the task: if it ended, abandoned turns would wait forever.
            log.exception("background work for chats failed, retrying")
            await asyncio.sleep(_RETRY_SECONDS)


def create_runner_id() -> str:
    """Return a new id for this process: ``host:pid:start time:random``."""
    pid = os.getpid()
    return ":".join((_get_host_id(), str(pid), process_start_time(pid), secrets.token_hex(4)))


def is_runner_gone(runner: str, seconds_since_heartbeat: float) -> bool:
    """Return whether a runner's process on this machine is dead, or its last heartbeat is too old."""
    # The start time distinguishes the process from a later one with the same pid.
    host, _, rest = runner.partition(":")
    pid, _, rest = rest.partition(":")
    started = rest.partition(":")[0]
    if host == _get_host_id() and pid.isdigit() and has_ended(int(pid), started):
        return True
    return seconds_since_heartbeat > _RUNNER_TIMEOUT_SECONDS


def _get_host_id() -> str:
    """Return an id of this machine or container: pids are only comparable within one pid namespace."""
    return f"{socket.gethostname().replace(':', '-')}/{pid_namespace()}"
