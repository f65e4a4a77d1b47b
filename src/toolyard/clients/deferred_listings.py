"""Answers of servers that a list is not held up for: whoever no longer waits is told when they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.errors import ServerError

__all__ = ["PATIENCE", "Key", "Latecomers", "Work", "in_time"]

PATIENCE = 2.0
"""Seconds for which one that lists many servers waits for any of them."""
_PARALLEL = 16
"""Servers that one listing asks at the same time."""

Key: TypeAlias = tuple[str, str, str | None]
"""The principal's and the server's id, and the chat over whose connection it is asked, where it is one's."""
Work: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks a server. Whether it has something else now than before. Raises a ServerError."""
Told: TypeAlias = Callable[[Key], None]


@dataclass(slots=True, eq=False)
class _Coming:
    task: asyncio.Task[bool]
    began: float
    late: bool = False
    """Somebody had a list without it."""


async def in_time(task: asyncio.Task[object], began: float) -> bool:
    """Whether something that began then is done as long as one waits for it."""
    if not task.done():
        left = began + PATIENCE - asyncio.get_running_loop().time()
        await asyncio.wait((task,), timeout=max(0.0, left))
    return task.done()


class Latecomers:
    """What is under way, once for all who want it."""

    def __init__(self) -> None:
        self._told: list[Told] = []
        self._coming: dict[Key, _Coming] = {}

    def hear(self, told: Told) -> Callable[[], None]:
        """Tell somebody of those that had something else, after a list did without it; call what comes back
        to end that."""
        self._told.append(told)
        return lambda: self._told.remove(told)

    async def wait(self, works: Mapping[Key, Work]) -> None:
        """Begin what is not under way, and wait for each of them, but not for long after it began. Raises
        what is no server's failure."""
        gate = asyncio.Semaphore(_PARALLEL)
        coming = [self._begun(key, work, gate) for key, work in works.items()]
        for each in coming:
            if not await in_time(each.task, each.began):
                each.late = True
            elif not each.task.cancelled():
                each.task.result()

    def any(self, principal_id: str) -> bool:
        """Whether anything is under way for a principal."""
        return any(key[0] == principal_id for key in self._coming)

    def _begun(self, key: Key, work: Work, gate: asyncio.Semaphore) -> _Coming:
        if (coming := self._coming.get(key)) is None:
            loop = asyncio.get_running_loop()
            coming = _Coming(loop.create_task(_gated(work, gate)), loop.time())
            self._coming[key] = coming
            coming.task.add_done_callback(lambda task: self._came(key, task))
        return coming

    def _came(self, key: Key, task: asyncio.Task[bool]) -> None:
        coming = self._coming.pop(key)
        if not task.cancelled() and task.exception() is None and task.result() and coming.late:
            for told in self._told:
                told(key)

    async def close(self) -> None:
        """End all of it."""
        tasks = [coming.task for coming in self._coming.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _gated(work: Work, gate: asyncio.Semaphore) -> bool:
    async with gate:
        try:
            return await work()
        except ServerError:
            return False
