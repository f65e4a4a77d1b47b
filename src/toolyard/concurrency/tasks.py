"""Background tasks with an owner, and concurrent calls that share one task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["BackgroundTasks", "SingleFlight", "cancel_tasks", "iterate_in_steps", "run_in_locked_thread"]

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")

_ITEMS_PER_STEP = 200

_log = logging.getLogger("toolyard.concurrency")


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended. Their exceptions are ignored."""
    # A copy: callbacks of ended tasks remove them from the collection of the caller during the wait.
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def iterate_in_steps(items: Iterable[_T], items_per_step: int = _ITEMS_PER_STEP) -> AsyncGenerator[_T]:
    """Yield the items of a long list, and let other tasks run in between."""
    for number, item in enumerate(items, 1):
        yield item
        if number % items_per_step == 0:
            await asyncio.sleep(0)


async def run_in_locked_thread(lock: asyncio.Lock, work: Callable[[], _T]) -> _T:
    """Run work in a thread that holds a lock. If the caller is cancelled, the thread keeps it until it ends.

    Callers that wait for the lock occupy no thread.
    """
    await lock.acquire()
    result = asyncio.get_running_loop().run_in_executor(None, work)
    result.add_done_callback(lambda _: lock.release())
    return await asyncio.shield(result)


class BackgroundTasks:
    """Running tasks that nobody else awaits. A failure is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, _T], *, name: str | None = None) -> asyncio.Task[_T]:
        """Run a coroutine in a task of its own until it ends or ``close`` cancels it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.add(task)
        return task

    def add(self, task: asyncio.Task[Any]) -> None:
        """Take over a running task."""
        # The event loop refers to its tasks weakly: without this set the garbage collector could remove a
        # task that is still running.
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    async def wait(self) -> None:
        """Wait until no task is running."""
        # A loop, because a task may spawn another one before it ends.
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await cancel_tasks(self._tasks)

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the background task %s failed", task.get_name(), exc_info=error)


@dataclass(slots=True)
class _SharedTask(Generic[_T]):
    task: asyncio.Task[_T]
    waiting: int = 0


class SingleFlight(Generic[_K, _T]):
    """Running tasks by key.

    Callers with the same key share one task and its result or exception; nothing is cached after it ends.
    Cancelling one caller does not affect the others.
    """

    def __init__(self, *, cancel_when_abandoned: bool) -> None:
        """With ``cancel_when_abandoned``, a task is cancelled with its last caller."""
        self._cancel_when_abandoned = cancel_when_abandoned
        # An abandoned task leaves ``_shared_tasks`` at once but stays in ``_tasks`` until it has ended, so
        # that ``close`` waits for it too.
        self._shared_tasks: dict[_K, _SharedTask[_T]] = {}
        self._tasks: set[asyncio.Task[_T]] = set()

    async def run(self, key: _K, start: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of the task under ``key``; create it with ``start`` if none is running.

        Raises the task's exception, and CancelledError if ``close`` cancelled the task.
        """
        shared = self._shared_tasks.get(key)
        if shared is None:
            shared = self._shared_tasks[key] = _SharedTask(asyncio.create_task(start()))
            self._tasks.add(shared.task)
            shared.task.add_done_callback(lambda task: self._on_task_done(key, task))
        shared.waiting += 1
        try:
            # The shield keeps one caller's cancellation away from the shared task.
            return await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            # Removed at once, not when the task ends: a new caller must not join a task that is being
            # cancelled.
            if self._cancel_when_abandoned and shared.waiting == 0 and not shared.task.done():
                self._remove_task(key, shared.task)
                shared.task.cancel()

    async def wait_for_other_keys(self, key: _K) -> None:
        """Wait until no task runs under another key. Raises CancelledError if ``close`` cancels one."""
        # A loop: when the awaited task ends, another caller may have started the next one before this caller
        # runs.
        while others := [shared.task for other, shared in self._shared_tasks.items() if other != key]:
            await asyncio.wait(others)
            if any(task.cancelled() for task in others):
                raise asyncio.CancelledError

    def has_pending(self, matches: Callable[[_K], bool]) -> bool:
        """Return True if a task is running under a key accepted by ``matches``."""
        return any(map(matches, self._shared_tasks))

    async def close(self, timeout_seconds: float = 0.0) -> None:
        """Wait up to ``timeout_seconds`` for the running tasks, then cancel them and wait for their end."""
        if self._tasks and timeout_seconds:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)
        await cancel_tasks(self._tasks)

    def _on_task_done(self, key: _K, task: asyncio.Task[_T]) -> None:
        self._tasks.discard(task)
        self._remove_task(key, task)
        if not task.cancelled():
            # Mark the exception as retrieved: if the last caller was cancelled, asyncio would log it.
            task.exception()

    def _remove_task(self, key: _K, task: asyncio.Task[_T]) -> None:
        # An abandoned task was removed when it was cancelled. When it ends, its key may already belong to the
        # task of a later caller, which must stay.
        shared = self._shared_tasks.get(key)
        if shared is not None and shared.task is task:
            del self._shared_tasks[key]
