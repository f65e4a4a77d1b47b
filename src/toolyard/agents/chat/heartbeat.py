"""What a process does for its chats all the time: beats, stops that were asked for elsewhere, and ends for
turns whose process is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Container, Coroutine
from typing import Any

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.runner_id import is_runner_gone
from toolyard.agents.chat.turn import TurnContext, close_turn
from toolyard.agents.chat.turn_end import TurnEnd
from toolyard.errors import ToolyardError
from toolyard.types.chat import Chat, TurnOutcome

__all__ = ["PROCESS_GONE", "RunnerHeartbeat", "repeat_forever"]

log = logging.getLogger("toolyard.chat")

_HEARTBEAT_INTERVAL_SECONDS = 10.0
"""Seconds between two beats, and between two looks for turns that were left behind."""
_MAX_HEARTBEAT_GAP_SECONDS = 20.0
"""Seconds between two beats that are too many: the database was away. Others could not beat either, and have
as long to do so before they are taken for gone."""
_RETRY_SECONDS = 1.0
"""Seconds until the next try after the database could not be asked."""

PROCESS_GONE = TurnEnd(
    TurnOutcome.INTERRUPTED,
    "the process that worked on this was ended",
    "what had arrived is kept; retry runs the turn again",
)


class RunnerHeartbeat:
    """Runs beside the turns of one process."""

    def __init__(
        self, context: TurnContext, is_running_here: Callable[[str], bool], stop_turn: Callable[[str], None]
    ) -> None:
        """``ours``: whether a chat's turn is being worked on here; ``stop`` stops it."""
        self._context = context
        self._is_running_here = is_running_here
        self._stop_turn = stop_turn
        self._tasks: list[asyncio.Task[None]] = []
        self._last_heartbeat_at = context.clock()
        self._grace_until = 0.0

    async def open(self) -> None:
        """Begin. Turns that were left behind are ended when this returns. Raises what the store raises."""
        await self.end_abandoned_turns()
        self._last_heartbeat_at = self._context.clock()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(repeat_forever(self._send_heartbeat)),
            loop.create_task(self._listen_for_stops()),
        ]

    async def close(self) -> None:
        """End it."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def end_abandoned_turns(self) -> None:
        """End every turn that nobody works on any more. Raises what the store raises."""
        gone: set[str] = set()
        patient = 0 < self._grace_until - self._context.clock() <= _MAX_HEARTBEAT_GAP_SECONDS

        def is_abandoned(runner: str, seconds: float) -> bool:
            # Ours, and nobody here works on it: its end could not be written.
            if runner == self._context.runner or is_runner_gone(runner, 0.0 if patient else seconds):
                gone.add(runner)
            return runner in gone

        for chat in await self._context.store.find_abandoned(is_abandoned):
            if not self._is_running_here(chat.id):
                await self._end_abandoned_turn(chat, gone)

    async def _end_abandoned_turn(self, chat: Chat, gone_runners: Container[str]) -> None:
        desk = self._context
        runner = await desk.store.get_runner(chat.id)
        # Much may have happened since it was looked at.
        if runner is None or runner not in gone_runners or self._is_running_here(chat.id):
            return
        if runner != desk.runner and not await desk.store.take_over(chat.id, desk.runner, runner):
            return
        log.info("chat %s: a turn was left behind, and is ended as interrupted", chat.id)
        # It may have been deleted a moment ago.
        with contextlib.suppress(NotHeld):
            await close_turn(desk, chat.id, chat.turn, PROCESS_GONE)

    async def _send_heartbeat(self) -> None:
        await asyncio.sleep(_HEARTBEAT_INTERVAL_SECONDS)
        await self._context.store.record_heartbeat(self._context.runner)
        now = self._context.clock()
        # A clock that jumped looks the same, and is the same for others.
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
    """Do something again and again; a database that is away for a while ends nothing."""
    while True:
        try:
            await work()
        except ToolyardError as error:
            log.warning("the house could not be kept: %s", error.cause)
            await asyncio.sleep(_RETRY_SECONDS)
        except Exception:
            # The top of a task: without it turns would wait for ever.
            log.exception("the house could not be kept")
            await asyncio.sleep(_RETRY_SECONDS)
