"""Writes that share a transaction: whoever comes while one is written goes with the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from toolyard.store.errors import Conflict, StoreClosed, Unstorable

__all__ = ["Gathering"]

_I = TypeVar("_I")
_O = TypeVar("_O")

_BATCH = 500
_WEIGHT = 32_000_000
"""Bytes after which a batch is large enough."""
_LAST = 10.0
"""Seconds that closing gives to those who wait."""


class Gathering(Generic[_I, _O]):
    """Hands items to ``write`` in the order in which they come, many at a time, and one batch after the
    other. The first after a pause goes at once."""

    def __init__(
        self, write: Callable[[Sequence[_I]], Awaitable[Sequence[_O]]], weigh: Callable[[_I], int]
    ) -> None:
        self._write = write
        self._weigh = weigh
        self._waiting: deque[tuple[_I, asyncio.Future[_O]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def put(self, item: _I) -> _O:
        """What came of it. Whoever stops waiting takes back what was not begun. Raises StoreError."""
        if self._closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_O] = loop.create_future()
        self._waiting.append((item, done))
        if self._task is None:
            self._task = loop.create_task(self._work(), name="toolyard-gathering")
        return await done

    async def close(self) -> None:
        """Write what waits; what cannot be written in some seconds is not."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_LAST)
        while self._waiting:
            _end(self._waiting.popleft()[1], _closed())

    async def _work(self) -> None:
        try:
            while batch := self._batch():
                try:
                    await self._written(batch)
                finally:
                    # Only where the loop itself ends is anybody left.
                    for _, done in batch:
                        done.cancel()
        finally:
            self._task = None

    def _batch(self) -> list[tuple[_I, asyncio.Future[_O]]]:
        batch: list[tuple[_I, asyncio.Future[_O]]] = []
        weight = 0
        while self._waiting and len(batch) < _BATCH and weight < _WEIGHT:
            item, done = self._waiting.popleft()
            if not done.done():
                batch.append((item, done))
                weight += self._weigh(item)
        return batch

    async def _written(self, batch: list[tuple[_I, asyncio.Future[_O]]]) -> None:
        try:
            outcomes = await self._write([item for item, _ in batch])
        except (Conflict, Unstorable) as error:
            # Nothing was written, and the fault is in one of them: the others shall not bear it.
            if len(batch) == 1:
                _end(batch[0][1], error)
                return
            for one in batch:
                await self._written([one])
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            # The top of a task: whoever waits gets it, whatever it is, and the next batch is written.
            for _, done in batch:
                _end(done, error)
        else:
            for (_, done), outcome in zip(batch, outcomes, strict=True):
                if not done.done():
                    done.set_result(outcome)


def _end(done: asyncio.Future[_O], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)


def _closed() -> StoreClosed:
    return StoreClosed("the store was closed", hint="this process is stopping")
