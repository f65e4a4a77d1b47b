"""One piece of work for all who ask for it at the same time."""

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
    """Work that is under way, by key.

    Who asks while it is under way shares its outcome, good or bad; nothing is remembered afterwards. A waiter
    that is cancelled leaves the others alone; when the last one is gone, the work is cancelled too.
    """

    def __init__(self) -> None:
        self._shared_tasks: dict[_K, _SharedTask[_T]] = {}
        self._tasks: set[asyncio.Task[_T]] = set()

    async def run(self, key: _K, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The outcome of the work under ``key``, which ``begin`` starts where none is under way."""
        flight = self._shared_tasks.get(key)
        if flight is None:
            flight = _SharedTask(asyncio.create_task(start()))
            self._shared_tasks[key] = flight
            self._tasks.add(flight.task)
            flight.task.add_done_callback(lambda task: self._on_task_done(key, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                self._remove_task(key, flight.task)
                flight.task.cancel()

    def has_pending(self, matches: Callable[[_K], bool]) -> bool:
        """Whether work is under way under such a key."""
        return any(map(matches, self._shared_tasks))

    async def close(self) -> None:
        """Cancel what is under way and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_task_done(self, key: _K, task: asyncio.Task[_T]) -> None:
        self._tasks.discard(task)
        self._remove_task(key, task)
        if not task.cancelled():
            task.exception()  # Seen, even where the last waiter left before it was raised.

    def _remove_task(self, key: _K, task: asyncio.Task[_T]) -> None:
        flight = self._shared_tasks.get(key)
        if flight is not None and flight.task is task:
            del self._shared_tasks[key]
