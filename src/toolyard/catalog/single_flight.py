"""One piece of work for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Flights"]

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Flight(Generic[_T]):
    task: asyncio.Task[_T]
    waiting: int = 0


class Flights(Generic[_K, _T]):
    """Work that is under way, by key.

    Who asks while it is under way shares its outcome, good or bad; nothing is remembered afterwards. A waiter
    that is cancelled leaves the others alone; when the last one is gone, the work is cancelled too.
    """

    def __init__(self) -> None:
        self._flights: dict[_K, _Flight[_T]] = {}
        self._tasks: set[asyncio.Task[_T]] = set()

    async def join(self, key: _K, begin: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The outcome of the work under ``key``, which ``begin`` starts where none is under way."""
        flight = self._flights.get(key)
        if flight is None:
            flight = _Flight(asyncio.create_task(begin()))
            self._flights[key] = flight
            self._tasks.add(flight.task)
            flight.task.add_done_callback(lambda task: self._landed(key, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done():
                self._drop(key, flight.task)
                flight.task.cancel()

    def any(self, wanted: Callable[[_K], bool]) -> bool:
        """Whether work is under way under such a key."""
        return any(map(wanted, self._flights))

    async def close(self) -> None:
        """Cancel what is under way and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _landed(self, key: _K, task: asyncio.Task[_T]) -> None:
        self._tasks.discard(task)
        self._drop(key, task)
        if not task.cancelled():
            task.exception()  # Seen, even where the last waiter left before it was raised.

    def _drop(self, key: _K, task: asyncio.Task[_T]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
