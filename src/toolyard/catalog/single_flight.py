"""Coalescing of concurrent calls: one task per key, shared by all callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["SingleFlight"]

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(slots=True)
class _SharedTask(Generic[_T]):
    task: asyncio.Task[_T]
    waiting: int = 0


class SingleFlight(Generic[_K, _T]):
    """Running tasks by key.

    Callers with the same key share one task and its result or exception; nothing is cached after it ends.
    Cancelling one caller does not affect the others. When the last caller is cancelled, so is the task.
    """

    def __init__(self) -> None:
        self._shared_tasks: dict[_K, _SharedTask[_T]] = {}
        self._tasks: set[asyncio.Task[_T]] = set()

    async def run(self, key: _K, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of the task under ``key``; create it with ``start`` if none is running."""
        flight = self._shared_tasks.get(key)
        if flight is None:
            flight = _SharedTask(asyncio.create_task(start()))
            self._shared_tasks[key] = flight
            self._tasks.add(flight.task)
            flight.task.add_done_callback(lambda task: self._on_task_done(key, task))
        flight.waiting += 1
        try:
            # The shield keeps one caller's cancellation away from the shared task.
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            # Removed at once, not when the task ends: a new caller must not join a task that is being
            # cancelled.
            if flight.waiting == 0 and not flight.task.done():
                self._remove_task(key, flight.task)
                flight.task.cancel()

    def has_pending(self, matches: Callable[[_K], bool]) -> bool:
        """Return True if a task is running under a key accepted by ``matches``."""
        return any(map(matches, self._shared_tasks))

    async def close(self) -> None:
        """Cancel all running tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_task_done(self, key: _K, task: asyncio.Task[_T]) -> None:
        self._tasks.discard(task)
        self._remove_task(key, task)
        if not task.cancelled():
            # Mark the exception as retrieved: if the last caller was cancelled, asyncio would log it.
            task.exception()

    def _remove_task(self, key: _K, task: asyncio.Task[_T]) -> None:
        flight = self._shared_tasks.get(key)
        if flight is not None and flight.task is task:
            del self._shared_tasks[key]
