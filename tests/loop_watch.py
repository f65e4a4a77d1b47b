"""Observation of the event loop: turns of other tasks, and the longest wait between two of them."""

from __future__ import annotations

import asyncio
import gc
import time
from types import TracebackType

from tests.tasks import cancel

__all__ = ["LoopWatch"]


class LoopWatch:
    """Counts the turns of the running loop, and the longest time between two of them.

    The time is CPU time of this process, so that other processes do not falsify it. It includes the CPU time
    of other threads, because the loop cannot run while one of them holds the interpreter lock.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.longest_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LoopWatch:
        # As ``serve`` does once it has started: objects of earlier tests would lengthen each collection.
        gc.collect()
        gc.freeze()
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        # Let the watch run after the last step.
        await asyncio.sleep(0)
        await cancel(self._task)

    async def _run(self) -> None:
        before = time.process_time()
        while True:
            await asyncio.sleep(0)
            now = time.process_time()
            self.turns += 1
            self.longest_seconds = max(self.longest_seconds, now - before)
            before = now
