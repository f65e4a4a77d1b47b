"""Background work for the turns of one process: heartbeats, stop requests, and ending abandoned turns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Container, Coroutine
from typing import Any

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.turn import TurnServices, close_turn
from toolyard.agents.chat.turn_end import TurnEnd
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import ToolyardError
from toolyard.transports.stdio.watchdog import pid_namespace, process_start_time
from toolyard.types.chat import Chat, TurnOutcome

__all__ = ["PROCESS_GONE", "RunnerHeartbeat", "create_runner_id", "is_runner_gone", "repeat_forever"]

log = logging.getLogger("toolyard.chat")

_HEARTBEAT_INTERVAL_SECONDS = 10.0
"""Time between two heartbeats, and between two searches for abandoned turns."""
_MAX_HEARTBEAT_GAP_SECONDS = 20.0
"""Gap between heartbeats after which the database is assumed to have been unavailable.

Other runners could not send heartbeats either, so they get the same time to do so before they count as gone.
"""
_RETRY_SECONDS = 1.0
"""Delay before the next attempt after a database error."""

PROCESS_GONE = TurnEnd(
    TurnOutcome.INTERRUPTED,
    "the process that ran this turn has ended",
    "partial output is kept; retry runs the turn again",
)


class RunnerHeartbeat:
    """Runs beside the turns of one process."""

    def __init__(
        self, context: TurnServices, is_running_here: Callable[[str], bool], stop_turn: Callable[[str], None]
    ) -> None:
        """``is_running_here`` tells whether this process runs a chat's turn; ``stop_turn`` stops it."""
        self._context = context
        self._is_running_here = is_running_here
        self._stop_turn = stop_turn
        self._tasks: list[asyncio.Task[None]] = []
        self._last_heartbeat_at = context.clock()
        self._grace_until = 0.0

    async def open(self) -> None:
        """End abandoned turns, then start the background tasks. Raises the store's errors."""
        await self.end_abandoned_turns()
        self._last_heartbeat_at = self._context.clock()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(repeat_forever(self._send_heartbeat)),
            loop.create_task(self._listen_for_stops()),
        ]

    async def close(self) -> None:
        """Stop the background tasks."""
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(tasks)

    async def end_abandoned_turns(self) -> None:
        """End every turn whose runner is gone. Raises the store's errors."""
        gone_runners: set[str] = set()
        in_grace_period = 0 < self._grace_until - self._context.clock() <= _MAX_HEARTBEAT_GAP_SECONDS

        def is_abandoned(runner: str, seconds: float) -> bool:
            # A turn held by this runner without a running task: storing its end failed earlier.
            if runner == self._context.runner or is_runner_gone(runner, 0.0 if in_grace_period else seconds):
                gone_runners.add(runner)
            return runner in gone_runners

        for chat in await self._context.store.find_abandoned(is_abandoned):
            if not self._is_running_here(chat.id):
                await self._end_abandoned_turn(chat, gone_runners)

    async def _end_abandoned_turn(self, chat: Chat, gone_runners: Container[str]) -> None:
        context = self._context
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
            await close_turn(context, chat.id, chat.turn, PROCESS_GONE)

    async def _send_heartbeat(self) -> None:
        await asyncio.sleep(_HEARTBEAT_INTERVAL_SECONDS)
        # In this order: the gap since our own last heartbeat must be known before other runners are judged by
        # theirs.
        await self._context.store.record_heartbeat(self._context.runner)
        now = self._context.clock()
        # A clock that jumped has the same effect here, and other processes on this machine see it too.
        if not 0.0 <= now - self._last_heartbeat_at <= _MAX_HEARTBEAT_GAP_SECONDS:
            self._grace_until = now + _MAX_HEARTBEAT_GAP_SECONDS
        self._last_heartbeat_at = now
        await self.end_abandoned_turns()

    async def _listen_for_stops(self) -> None:
        async def listen_once() -> None:
            async for chat_id in self._context.store.listen_for_stop_requests():
                self._stop_turn(chat_id)
            await asyncio.sleep(_RETRY_SECONDS)

        await repeat_forever(listen_once)


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


_RUNNER_TIMEOUT_SECONDS = 30.0
"""Time without a heartbeat after which a runner on another machine counts as gone."""


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
    if host == _get_host_id() and pid.isdigit() and process_start_time(int(pid)) != started:
        return True
    return seconds_since_heartbeat > _RUNNER_TIMEOUT_SECONDS


def _get_host_id() -> str:
    """Return an id of this machine or container: pids are only comparable within one pid namespace."""
    return f"{socket.gethostname().replace(':', '-')}/{pid_namespace()}"
