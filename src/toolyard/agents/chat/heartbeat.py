"""What a process does for its chats all the time: beats, stops that were asked for elsewhere, and ends for
turns whose process is gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Container, Coroutine
from typing import Any

from toolyard.agents.chat.errors import NotHeld
from toolyard.agents.chat.runner_id import is_gone
from toolyard.agents.chat.turn import Desk, close_turn
from toolyard.agents.chat.turn_end import Ended
from toolyard.errors import ToolyardError
from toolyard.types.chat import Chat, Ending

__all__ = ["LOST", "Housekeeping", "kept_up"]

log = logging.getLogger("toolyard.chat")

_EVERY = 10.0
"""Seconds between two beats, and between two looks for turns that were left behind."""
_LATE = 20.0
"""Seconds between two beats that are too many: the database was away. Others could not beat either, and have
as long to do so before they are taken for gone."""
_AGAIN = 1.0
"""Seconds until the next try after the database could not be asked."""

LOST = Ended(
    Ending.INTERRUPTED,
    "the process that worked on this was ended",
    "what had arrived is kept; retry runs the turn again",
)


class Housekeeping:
    """Runs beside the turns of one process."""

    def __init__(self, desk: Desk, ours: Callable[[str], bool], stop: Callable[[str], None]) -> None:
        """``ours``: whether a chat's turn is being worked on here; ``stop`` stops it."""
        self._desk = desk
        self._ours = ours
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []
        self._beaten = desk.clock()
        self._patient_until = 0.0

    async def open(self) -> None:
        """Begin. Turns that were left behind are ended when this returns. Raises what the store raises."""
        await self.recover()
        self._beaten = self._desk.clock()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(kept_up(self._beat)), loop.create_task(self._hear_stops())]

    async def close(self) -> None:
        """End it."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def recover(self) -> None:
        """End every turn that nobody works on any more. Raises what the store raises."""
        gone: set[str] = set()
        patient = 0 < self._patient_until - self._desk.clock() <= _LATE

        def left(runner: str, seconds: float) -> bool:
            # Ours, and nobody here works on it: its end could not be written.
            if runner == self._desk.runner or is_gone(runner, 0.0 if patient else seconds):
                gone.add(runner)
            return runner in gone

        for chat in await self._desk.store.interrupted(left):
            if not self._ours(chat.id):
                await self._recover(chat, gone)

    async def _recover(self, chat: Chat, gone: Container[str]) -> None:
        desk = self._desk
        runner = await desk.store.runner(chat.id)
        # Much may have happened since it was looked at.
        if runner is None or runner not in gone or self._ours(chat.id):
            return
        if runner != desk.runner and not await desk.store.take_over(chat.id, desk.runner, runner):
            return
        log.info("chat %s: a turn was left behind, and is ended as interrupted", chat.id)
        # It may have been deleted a moment ago.
        with contextlib.suppress(NotHeld):
            await close_turn(desk, chat.id, chat.turn, LOST)

    async def _beat(self) -> None:
        await asyncio.sleep(_EVERY)
        await self._desk.store.beat(self._desk.runner)
        now = self._desk.clock()
        # A clock that jumped looks the same, and is the same for others.
        if not 0.0 <= now - self._beaten <= _LATE:
            self._patient_until = now + _LATE
        self._beaten = now
        await self.recover()

    async def _hear_stops(self) -> None:
        async def once() -> None:
            async for chat_id in self._desk.store.stops():
                self._stop(chat_id)
            await asyncio.sleep(_AGAIN)

        await kept_up(once)


async def kept_up(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do something again and again; a database that is away for a while ends nothing."""
    while True:
        try:
            await work()
        except ToolyardError as error:
            log.warning("the house could not be kept: %s", error.cause)
            await asyncio.sleep(_AGAIN)
        except Exception:
            # The top of a task: without it turns would wait for ever.
            log.exception("the house could not be kept")
            await asyncio.sleep(_AGAIN)
