"""Time limits of many short operations on one timer of the event loop.

``asyncio.timeout`` creates a timer for each use, which is cancelled in nearly every case: most operations end
long before their limit.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Protocol, Self

__all__ = ["SharedTimer", "TimeLimit", "Timed"]

_MIN_INTERVAL_SECONDS = 0.02
"""Minimum time between two checks, which look at all entries."""
_CLOCK_RESOLUTION_SECONDS = 0.001
"""Timers of uvloop are exact to a millisecond."""


class Timed(Protocol):
    """Entry of a SharedTimer. ``due`` is a time of the event loop's clock."""

    due: float

    def expire(self) -> None: ...


class SharedTimer:
    """Calls ``expire`` of entries that are due, and removes them. Bound to the loop that first uses it."""

    def __init__(self) -> None:
        self._entries: set[Timed] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._next_check = math.inf

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def add(self, entry: Timed) -> None:
        """Add an entry, or check again an entry that is due earlier than before."""
        self._entries.add(entry)
        if entry.due < self._next_check:
            self._schedule(entry.due)

    def discard(self, entry: Timed) -> None:
        """Remove an entry. The timer itself goes on, and finds it gone."""
        self._entries.discard(entry)

    def _schedule(self, when: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._next_check = when
        self._handle = self.loop.call_at(when, self._check)

    def _check(self) -> None:
        self._handle, self._next_check = None, math.inf
        now = self.loop.time()
        for entry in [entry for entry in self._entries if entry.due <= now + _CLOCK_RESOLUTION_SECONDS]:
            self._entries.discard(entry)
            entry.expire()
        earliest = min((entry.due for entry in self._entries), default=math.inf)
        if earliest < self._next_check:
            self._schedule(max(earliest, now + _MIN_INTERVAL_SECONDS))


class TimeLimit:
    """Context manager that cancels its body when it is due, and raises TimeoutError then.

    The same as ``asyncio.timeout_at``, which see for the handling of cancellations from elsewhere.
    """

    __slots__ = ("_cancellations", "_is_expired", "_task", "_timer", "due")

    def __init__(self, timer: SharedTimer, due: float) -> None:
        self.due = due
        self._timer = timer
        self._is_expired = False
        self._task: asyncio.Task[object] | None = None

    def __enter__(self) -> Self:
        self._task = task = asyncio.current_task(self._timer.loop)
        if task is None:
            raise RuntimeError("a time limit needs a task")
        self._cancellations = task.cancelling()
        self._timer.add(self)
        return self

    def reschedule(self, due: float) -> None:
        """Change the time at which the body is cancelled. Has no effect after that."""
        if self._task is not None and not self._is_expired:
            self.due = due
            self._timer.add(self)

    def expire(self) -> None:
        """Cancel the body. Called by the timer."""
        if self._task is not None:
            self._is_expired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.discard(self)
        task, self._task = self._task, None
        if (
            self._is_expired
            and task is not None
            and task.uncancel() <= self._cancellations
            and kind is asyncio.CancelledError
        ):
            raise TimeoutError from error
