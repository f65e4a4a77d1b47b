"""Batching of concurrent writes into shared transactions.

Items submitted while a transaction is being written form the next batch. No timer delays a batch: the first
item after a pause is written at once, and batches grow only under load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from toolyard.store.errors import Conflict, StoreClosed, Unstorable

__all__ = ["WriteBatcher"]

_I = TypeVar("_I")
_O = TypeVar("_O")


class WriteBatcher(Generic[_I, _O]):
    """Passes items to ``write`` in order of submission, in batches, one batch at a time."""

    def __init__(
        self,
        write: Callable[[Sequence[_I]], Awaitable[Sequence[_O]]],
        size_of: Callable[[_I], int],
        *,
        max_items: int = 500,
        max_bytes: int = 32_000_000,
        close_timeout: float = 10.0,
    ) -> None:
        """No more items are added to a batch of ``max_items`` items or ``max_bytes`` bytes. ``close_timeout``
        is the time in seconds that ``close`` allows for writing the queue."""
        self._write = write
        self._size_of = size_of
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._close_timeout = close_timeout
        self._queue: deque[tuple[_I, asyncio.Future[_O]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def put(self, item: _I) -> _O:
        """Write an item and return its outcome. Cancelling removes a queued item. Raises StoreError."""
        if self._closed:
            raise StoreClosed()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_O] = loop.create_future()
        self._queue.append((item, future))
        # One task writes at a time. Everything here runs in one event loop, so the check needs no lock.
        if self._task is None:
            self._task = loop.create_task(self._write_batches(), name="toolyard-gathering")
        return await future

    async def close(self) -> None:
        """Write the queue; items that are not written in time fail with StoreClosed."""
        self._closed = True
        if self._task is not None:
            # ``wait`` does not cancel the task at the deadline: a commit under way would have an unknown
            # outcome.
            await asyncio.wait([self._task], timeout=self._close_timeout)
        while self._queue:
            _fail_future(self._queue.popleft()[1], StoreClosed())

    async def _write_batches(self) -> None:
        try:
            while self._queue and (batch := self._take_batch()):
                try:
                    await self._write_batch(batch)
                finally:
                    # Futures are pending here only if this task was cancelled, when the event loop ends.
                    for _, future in batch:
                        future.cancel()
        finally:
            self._task = None

    def _take_batch(self) -> list[tuple[_I, asyncio.Future[_O]]]:
        batch: list[tuple[_I, asyncio.Future[_O]]] = []
        total_bytes = 0
        while self._queue and len(batch) < self._max_items and total_bytes < self._max_bytes:
            item, future = self._queue.popleft()
            # A cancelled caller has left its item in the queue. It is dropped only here, before it is
            # written; afterwards it is too late.
            if not future.done():
                batch.append((item, future))
                total_bytes += self._size_of(item)
        return batch

    async def _write_batch(self, batch: list[tuple[_I, asyncio.Future[_O]]]) -> None:
        try:
            outcomes = await self._write([item for item, _ in batch])
        except (Conflict, Unstorable) as error:
            # The transaction was rolled back because of one item. Write each item in a transaction of its
            # own, so that only the invalid one fails.
            if len(batch) == 1:
                _fail_future(batch[0][1], error)
                return
            for entry in batch:
                await self._write_batch([entry])
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            # Nothing is written again: if the outcome of a commit is unknown, that could append items twice.
            for _, future in batch:
                _fail_future(future, error)
        else:
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)


def _fail_future(future: asyncio.Future[_O], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
