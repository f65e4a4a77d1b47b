"""Live updates for open pages by polling.

Records are fetched once per key, however many pages listen with that key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from toolyard.errors import ToolyardError

__all__ = ["LiveUpdate", "LiveUpdates"]

log = logging.getLogger("toolyard.web")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_POLL_INTERVAL_SECONDS = 0.5
"""Interval between polls while there are listeners, in seconds."""
_MIN_INTERVAL_FRACTION = 0.1
"""Minimum part of the interval to wait when a poll is requested, so that changes cannot cause a storm."""
_KEYS_PER_INTERVAL = 50
"""The interval grows by its own length for each of so many keys, to limit the load."""
_MAX_QUEUED_UPDATES = 256
"""Maximum number of updates queued for a listener. The stream of a slower one ends; it must reconnect."""


class LiveUpdate(NamedTuple, Generic[T]):
    """The new record of an id; None if it was removed."""

    id: str
    record: T | None


_UpdateQueue: TypeAlias = asyncio.Queue[LiveUpdate[T] | None]


class LiveUpdates(Generic[K, T]):
    """Polls the records of each key with listeners, and sends them the differences."""

    def __init__(
        self,
        fetch_records: Callable[[K], Awaitable[Mapping[str, T]]],
        *,
        interval_seconds: float = _POLL_INTERVAL_SECONDS,
        min_interval_fraction: float = _MIN_INTERVAL_FRACTION,
    ) -> None:
        self._min_interval_fraction = min_interval_fraction
        self._fetch_records = fetch_records
        self._interval_seconds = interval_seconds
        self._listeners: dict[K, set[_UpdateQueue[T]]] = {}
        self._last_records: dict[K, Mapping[str, T]] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._closed = False
        self._poll_requested = asyncio.Event()

    async def subscribe(self, key: K, *, heartbeat_seconds: float) -> AsyncGenerator[LiveUpdate[T] | None]:
        """Yield all records, then each change, and None after ``heartbeat_seconds`` without a change.

        Ends on ``close``, and when the listener is too slow to keep up.
        """
        if self._closed:
            return
        seen = await self._fetch_records(key)
        with self._register_listener(key, seen) as queue:
            for id_, now in seen.items():
                yield LiveUpdate(id_, now)
            while True:
                try:
                    async with asyncio.timeout(heartbeat_seconds):
                        change = await queue.get()
                except TimeoutError:
                    yield None
                    continue
                if change is None:
                    return
                yield change

    @property
    def is_polling(self) -> bool:
        """True while there are listeners."""
        return self._poll_task is not None and not self._poll_task.done()

    def request_poll(self) -> None:
        """Poll soon, because a change is known."""
        self._poll_requested.set()

    def close(self) -> None:
        """End all streams. Streams opened later are empty."""
        self._closed = True
        for queues in self._listeners.values():
            for queue in queues:
                _end_listener(queue)
        if self._poll_task is not None:
            self._poll_task.cancel()

    @contextlib.contextmanager
    def _register_listener(self, key: K, seen: Mapping[str, T]) -> Generator[_UpdateQueue[T]]:
        queue: _UpdateQueue[T] = asyncio.Queue(_MAX_QUEUED_UPDATES)
        queues = self._listeners.setdefault(key, set())
        # Other listeners of the key get the differences now. The new one is added afterwards, because it
        # sends ``seen`` itself.
        self._publish_changes(key, seen)
        queues.add(queue)
        if self._closed:
            _end_listener(queue)
        elif self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll_records())
        try:
            yield queue
        finally:
            self._listeners[key].discard(queue)
            if not self._listeners[key]:
                del self._listeners[key]
                self._last_records.pop(key, None)

    async def _poll_records(self) -> None:
        while self._listeners:
            await self._wait_for_next_poll(
                self._interval_seconds * (1 + len(self._listeners) / _KEYS_PER_INTERVAL)
            )
            for key in list(self._listeners):
                try:
                    now = await self._fetch_records(key)
                except ToolyardError as error:
                    log.warning("the status cannot be read: %s", error.cause)
                    continue
                # The last listener may have left while the records were fetched.
                if key in self._listeners:
                    self._publish_changes(key, now)

    async def _wait_for_next_poll(self, seconds: float) -> None:
        # First a pause that a request cannot shorten, then one that it can.
        await asyncio.sleep(seconds * self._min_interval_fraction)
        with contextlib.suppress(TimeoutError):
            rest = seconds * (1 - self._min_interval_fraction)
            async with asyncio.timeout(rest):
                await self._poll_requested.wait()
        self._poll_requested.clear()

    def _publish_changes(self, key: K, now: Mapping[str, T]) -> None:
        changes = list(_diff_records(self._last_records.get(key, {}), now))
        self._last_records[key] = now
        for queue in self._listeners[key]:
            if queue.qsize() + len(changes) >= _MAX_QUEUED_UPDATES:
                _end_listener(queue)
                continue
            for change in changes:
                queue.put_nowait(change)


def _diff_records(before: Mapping[str, T], now: Mapping[str, T]) -> Generator[LiveUpdate[T]]:
    for id_, each in now.items():
        if before.get(id_) != each:
            yield LiveUpdate(id_, each)
    for id_ in before.keys() - now.keys():
        yield LiveUpdate(id_, None)


def _end_listener(queue: _UpdateQueue[T]) -> None:
    # The queue may be full: make room for the end marker. The listener reconnects and gets all records again.
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
