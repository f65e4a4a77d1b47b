"""Answers of servers that a list is not held up for: whoever no longer waits is told when they come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.errors import ServerError

__all__ = [
    "LIST_DEADLINE_SECONDS",
    "DeferredListingKey",
    "DeferredListings",
    "ListingRefresh",
    "wait_until_deadline",
]

LIST_DEADLINE_SECONDS = 2.0
"""Seconds for which one that lists many servers waits for any of them."""
_MAX_PARALLEL_REFRESHES = 16
"""Servers that one listing asks at the same time."""

DeferredListingKey: TypeAlias = tuple[str, str, str | None]
"""The principal's and the server's id, and the chat over whose connection it is asked, where it is one's."""
ListingRefresh: TypeAlias = Callable[[], Awaitable[bool]]
"""Asks a server. Whether it has something else now than before. Raises a ServerError."""
OnListingChanged: TypeAlias = Callable[[DeferredListingKey], None]


@dataclass(slots=True, eq=False)
class _PendingRefresh:
    task: asyncio.Task[bool]
    started_at: float
    is_deferred: bool = False
    """Somebody had a list without it."""


async def wait_until_deadline(task: asyncio.Task[object], started_at: float) -> bool:
    """Whether something that began then is done as long as one waits for it."""
    if not task.done():
        left = started_at + LIST_DEADLINE_SECONDS - asyncio.get_running_loop().time()
        await asyncio.wait((task,), timeout=max(0.0, left))
    return task.done()


class DeferredListings:
    """What is under way, once for all who want it."""

    def __init__(self) -> None:
        self._listeners: list[OnListingChanged] = []
        self._pending_refreshes: dict[DeferredListingKey, _PendingRefresh] = {}

    def subscribe(self, listener: OnListingChanged) -> Callable[[], None]:
        """Tell somebody of those that had something else, after a list did without it; call what comes back
        to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self, refreshes: Mapping[DeferredListingKey, ListingRefresh]) -> None:
        """Begin what is not under way, and wait for each of them, but not for long after it began. Raises
        what is no server's failure."""
        gate = asyncio.Semaphore(_MAX_PARALLEL_REFRESHES)
        coming = [self._start_refresh(key, work, gate) for key, work in refreshes.items()]
        for each in coming:
            if not await wait_until_deadline(each.task, each.started_at):
                each.is_deferred = True
            elif not each.task.cancelled():
                each.task.result()

    def has_pending(self, principal_id: str) -> bool:
        """Whether anything is under way for a principal."""
        return any(key[0] == principal_id for key in self._pending_refreshes)

    def _start_refresh(
        self, key: DeferredListingKey, refresh: ListingRefresh, semaphore: asyncio.Semaphore
    ) -> _PendingRefresh:
        if (coming := self._pending_refreshes.get(key)) is None:
            loop = asyncio.get_running_loop()
            coming = _PendingRefresh(loop.create_task(_run_limited(refresh, semaphore)), loop.time())
            self._pending_refreshes[key] = coming
            coming.task.add_done_callback(lambda task: self._on_refresh_done(key, task))
        return coming

    def _on_refresh_done(self, key: DeferredListingKey, task: asyncio.Task[bool]) -> None:
        coming = self._pending_refreshes.pop(key)
        if not task.cancelled() and task.exception() is None and task.result() and coming.is_deferred:
            for told in self._listeners:
                told(key)

    async def close(self) -> None:
        """End all of it."""
        tasks = [coming.task for coming in self._pending_refreshes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_limited(refresh: ListingRefresh, semaphore: asyncio.Semaphore) -> bool:
    async with semaphore:
        try:
            return await refresh()
        except ServerError:
            return False
