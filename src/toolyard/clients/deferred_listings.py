"""Refresh listings in the background once a caller's deadline has passed, and notify subscribers when they
complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from toolyard.concurrency.tasks import cancel_tasks
from toolyard.errors import ServerError

__all__ = [
    "DeferredListingKey",
    "DeferredListings",
    "ListingRefresh",
    "wait_until_deadline",
]

_MAX_PARALLEL_REFRESHES = 16
"""Number of servers that one listing refreshes concurrently."""
_FIRST_LISTING_FACTOR = 4
"""Multiple of the deadline for which a list without any server waits for its first one."""

DeferredListingKey: TypeAlias = tuple[str, str, str | None]
"""Principal id, server id, and the chat whose connection is used, or None for the default connection."""
ListingRefresh: TypeAlias = Callable[[], Awaitable[bool]]
"""Fetches a server's listing and returns True if it differs from the known one. Raises a ServerError."""
OnListingChanged: TypeAlias = Callable[[DeferredListingKey], None]


@dataclass(slots=True, eq=False)
class _PendingRefresh:
    task: asyncio.Task[bool]
    started_at: float
    is_deferred: bool = False
    """True if a caller returned without waiting for this refresh."""


async def wait_until_deadline(task: asyncio.Task[object], started_at: float, seconds: float) -> bool:
    """Wait for a task until so many seconds after it started. Return True if it is done."""
    if not task.done():
        left = started_at + seconds - asyncio.get_running_loop().time()
        await asyncio.wait((task,), timeout=max(0.0, left))
    return task.done()


class DeferredListings:
    """Refreshes in progress, each shared by all callers that need it."""

    def __init__(self, deadline_seconds: float) -> None:
        """A listing of many servers waits ``deadline_seconds`` for each of them."""
        self.deadline_seconds = deadline_seconds
        self._listeners: list[OnListingChanged] = []
        self._pending_refreshes: dict[DeferredListingKey, _PendingRefresh] = {}

    def subscribe(self, listener: OnListingChanged) -> Callable[[], None]:
        """Call ``listener`` when a deferred refresh has found a changed listing. Return a function that ends
        the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def wait(self, refreshes: Mapping[DeferredListingKey, ListingRefresh]) -> None:
        """Start the refreshes that are not running yet, and wait for each until its deadline.

        A server's failure is ignored here; other exceptions are raised.
        """
        semaphore = asyncio.Semaphore(_MAX_PARALLEL_REFRESHES)
        pending = [self._start_refresh(key, refresh, semaphore) for key, refresh in refreshes.items()]
        for each in pending:
            if not await wait_until_deadline(each.task, each.started_at, self.deadline_seconds):
                # This caller goes on without the result. The mark makes the end of the refresh notify
                # subscribers.
                each.is_deferred = True
            elif not each.task.cancelled():
                each.task.result()

    async def wait_for_first(self, principal_id: str, is_found: Callable[[], bool]) -> None:
        """Wait until a running refresh has found something, all have ended, or four times the deadline has
        passed since the first of them began."""
        loop = asyncio.get_running_loop()
        while not is_found():
            pending = [each for key, each in self._pending_refreshes.items() if key[0] == principal_id]
            started_at = min((each.started_at for each in pending), default=0.0)
            left = started_at + _FIRST_LISTING_FACTOR * self.deadline_seconds - loop.time()
            if not pending or left <= 0:
                return
            tasks = [each.task for each in pending]
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def has_pending(self, principal_id: str) -> bool:
        """Return True if a refresh for this principal is running."""
        return any(key[0] == principal_id for key in self._pending_refreshes)

    def _start_refresh(
        self, key: DeferredListingKey, refresh: ListingRefresh, semaphore: asyncio.Semaphore
    ) -> _PendingRefresh:
        if (pending := self._pending_refreshes.get(key)) is None:
            loop = asyncio.get_running_loop()
            pending = _PendingRefresh(loop.create_task(_run_limited(refresh, semaphore)), loop.time())
            self._pending_refreshes[key] = pending
            pending.task.add_done_callback(lambda task: self._on_refresh_done(key, task))
        return pending

    def _on_refresh_done(self, key: DeferredListingKey, task: asyncio.Task[bool]) -> None:
        pending = self._pending_refreshes.pop(key)
        # Callers that waited for the result have it already; only deferred ones need a notification.
        if not task.cancelled() and task.exception() is None and task.result() and pending.is_deferred:
            for listener in self._listeners:
                listener(key)

    async def close(self) -> None:
        """Cancel all refreshes and wait for their end."""
        await cancel_tasks(pending.task for pending in self._pending_refreshes.values())


async def _run_limited(refresh: ListingRefresh, semaphore: asyncio.Semaphore) -> bool:
    async with semaphore:
        try:
            return await refresh()
        except ServerError:
            return False
