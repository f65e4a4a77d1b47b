"""Work that blocks, done beside the event loop, which ends when its time is over or nobody waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from toolyard.agents.builtin_tools.tool_error import NativeToolError

__all__ = ["BoundedThreadPool", "CancellationToken"]

T = TypeVar("T")

_MAX_THREADS = 4
"""Threads. More tools that read at the same time wait for their turn."""


class CancellationToken:
    """Work looks at it now and then, and ends where it is told to."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._cancelled = threading.Event()

    @property
    def should_stop(self) -> bool:
        """Whether there is no time left, or nobody waits any more."""
        return self._cancelled.is_set() or time.monotonic() > self._deadline

    def cancel(self) -> None:
        """Nobody waits for the work any more. May be called from any thread."""
        self._cancelled.set()

    def check(self) -> None:
        """Raises NativeFailure where the work must end without a result."""
        if self.should_stop:
            raise NativeToolError(f"took longer than {self._seconds:g} s; ask for less at once")


class BoundedThreadPool:
    """A few threads of our own: file systems that hang must not take those of others."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[CancellationToken], T], seconds: float) -> T:
        """The result of some work. Whoever is cancelled does not wait for it, and the work ends soon."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="toolyard-native")
        leash = CancellationToken(seconds)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, leash)
        finally:
            leash.cancel()

    def submit(self, work: Callable[[], None]) -> None:
        """Do something soon that nobody waits for."""
        if self._pool is not None:
            self._pool.submit(work)
        else:
            work()

    def close(self) -> None:
        """Take no more work; what runs ends by its leash."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
