"""Changes as they happen, for every page that is open: one look serves all who see the same."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from toolyard.errors import ToolyardError

__all__ = ["Change", "Live"]

log = logging.getLogger("toolyard.web")

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_EVERY = 0.5
"""Seconds between two looks, while anybody listens."""
_HURRY = 0.1
"""Of that time, what lies between two looks at least when it is known that something changed."""
_CROWD = 50
"""With each so many who see something of their own, the time between two looks grows by as much again."""
_WAITING = 256
"""Changes that may wait for a slow listener. One that is slower is sent away, and begins anew."""


class Change(NamedTuple, Generic[T]):
    """What is under an id from now on; None: nothing any more."""

    id: str
    now: T | None


_Queue: TypeAlias = asyncio.Queue[Change[T] | None]


class Live(Generic[K, T]):
    """Looks again and again at what somebody sees, by id, and tells all who listen what became different."""

    def __init__(self, look: Callable[[K], Awaitable[Mapping[str, T]]], *, every: float = _EVERY) -> None:
        self._look = look
        self._every = every
        self._listeners: dict[K, set[_Queue[T]]] = {}
        self._seen: dict[K, Mapping[str, T]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._closed = False
        self._changed = asyncio.Event()

    async def changes(self, key: K, *, heartbeat: float) -> AsyncGenerator[Change[T] | None]:
        """First everything as it is, then each change; None when nothing happened for so many seconds.

        Ends when this is closed, and for a listener that is too slow to follow.
        """
        if self._closed:
            return
        seen = await self._look(key)
        with self._listening(key, seen) as queue:
            for id_, now in seen.items():
                yield Change(id_, now)
            while True:
                try:
                    change = await asyncio.wait_for(queue.get(), heartbeat)
                except TimeoutError:
                    yield None
                    continue
                if change is None:
                    return
                yield change

    @property
    def watching(self) -> bool:
        """Whether anybody listens."""
        return self._watcher is not None and not self._watcher.done()

    def hurry(self) -> None:
        """Look soon: something is different."""
        self._changed.set()

    def close(self) -> None:
        """End every stream; who asks from now on gets an empty one."""
        self._closed = True
        for queues in self._listeners.values():
            for queue in queues:
                _send_away(queue)
        if self._watcher is not None:
            self._watcher.cancel()

    @contextlib.contextmanager
    def _listening(self, key: K, seen: Mapping[str, T]) -> Generator[_Queue[T]]:
        queue: _Queue[T] = asyncio.Queue(_WAITING)
        queues = self._listeners.setdefault(key, set())
        self._tell(key, seen)
        queues.add(queue)
        if self._closed:
            _send_away(queue)
        elif self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            yield queue
        finally:
            self._listeners[key].discard(queue)
            if not self._listeners[key]:
                del self._listeners[key]
                self._seen.pop(key, None)

    async def _watch(self) -> None:
        while self._listeners:
            await self._pause(self._every * (1 + len(self._listeners) / _CROWD))
            for key in list(self._listeners):
                try:
                    now = await self._look(key)
                except ToolyardError as error:
                    log.warning("the status cannot be looked at: %s", error.cause)
                    continue
                if key in self._listeners:
                    self._tell(key, now)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * _HURRY)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds * (1 - _HURRY))
        self._changed.clear()

    def _tell(self, key: K, now: Mapping[str, T]) -> None:
        changes = list(_different(self._seen.get(key, {}), now))
        self._seen[key] = now
        for queue in self._listeners[key]:
            if queue.qsize() + len(changes) >= _WAITING:
                _send_away(queue)
                continue
            for change in changes:
                queue.put_nowait(change)


def _different(before: Mapping[str, T], now: Mapping[str, T]) -> Generator[Change[T]]:
    for id_, each in now.items():
        if before.get(id_) != each:
            yield Change(id_, each)
    for id_ in before.keys() - now.keys():
        yield Change(id_, None)


def _send_away(queue: _Queue[T]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
