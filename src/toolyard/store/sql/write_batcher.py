"""Writes that share a transaction: whoever comes while one is written goes with the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from toolyard.store.errors import Conflict, StoreClosed, Unstorable

__all__ = ["WriteBatcher"]

_I = TypeVar("_I")
_O = TypeVar("_O")

_MAX_BATCH_ITEMS = 500
_MAX_BATCH_BYTES = 32_000_000
"""Bytes after which a batch is large enough."""
_CLOSE_TIMEOUT_SECONDS = 10.0
"""Seconds that closing gives to those who wait."""


class WriteBatcher(Generic[_I, _O]):
    """Hands items to ``write`` in the order in which they come, many at a time, and one batch after the
    other. The first after a pause goes at once."""

    def __init__(
        self, write: Callable[[Sequence[_I]], Awaitable[Sequence[_O]]], size_of: Callable[[_I], int]
    ) -> None:
        self._write = write
        self._size_of = size_of
        self._queue: deque[tuple[_I, asyncio.Future[_O]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def put(self, item: _I) -> _O:
        """What came of it. Whoever stops waiting takes back what was not begun. Raises StoreError."""
        if self._closed:
            raise _store_closed_error()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_O] = loop.create_future()
        self._queue.append((item, done))
        if self._task is None:
            self._task = loop.create_task(self._write_batches(), name="toolyard-gathering")
        return await done

    async def close(self) -> None:
        """Write what waits; what cannot be written in some seconds is not."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_TIMEOUT_SECONDS)
        while self._queue:
            _fail_future(self._queue.popleft()[1], _store_closed_error())

    async def _write_batches(self) -> None:
        try:
            while batch := self._take_batch():
                try:
                    await self._write_batch(batch)
                finally:
                    # Only where the loop itself ends is anybody left.
                    for _, done in batch:
                        done.cancel()
        finally:
            self._task = None

    def _take_batch(self) -> list[tuple[_I, asyncio.Future[_O]]]:
        batch: list[tuple[_I, asyncio.Future[_O]]] = []
        weight = 0
        while self._queue and len(batch) < _MAX_BATCH_ITEMS and weight < _MAX_BATCH_BYTES:
            item, done = self._queue.popleft()
            if not done.done():
                batch.append((item, done))
                weight += self._size_of(item)
        return batch

    async def _write_batch(self, batch: list[tuple[_I, asyncio.Future[_O]]]) -> None:
        try:
            outcomes = await self._write([item for item, _ in batch])
        except (Conflict, Unstorable) as error:
            # Nothing was written, and the fault is in one of them: the others shall not bear it.
            if len(batch) == 1:
                _fail_future(batch[0][1], error)
                return
            for one in batch:
                await self._write_batch([one])
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            # The top of a task: whoever waits gets it, whatever it is, and the next batch is written.
            for _, done in batch:
                _fail_future(done, error)
        else:
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                if not done.done():
                    done.set_result(outcome)


def _fail_future(future: asyncio.Future[_O], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _store_closed_error() -> StoreClosed:
    return StoreClosed("the store was closed", hint="this process is stopping")
