"""Run blocking work in threads, with a deadline and cancellation."""

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
"""Maximum number of threads; further work is queued."""


class CancellationToken:
    """Deadline and cancellation flag that the work checks regularly."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._cancelled = threading.Event()

    @property
    def should_stop(self) -> bool:
        """True if the deadline has passed or the work was cancelled."""
        return self._cancelled.is_set() or time.monotonic() > self._deadline

    def cancel(self) -> None:
        """Request the work to stop. May be called from any thread."""
        self._cancelled.set()

    def raise_if_stopped(self) -> None:
        """Raise NativeToolError if the work must stop without a result."""
        if self.should_stop:
            raise NativeToolError(f"the tool took longer than {self._seconds:g} s; narrow the request")


class BoundedThreadPool:
    """A dedicated pool of few threads: file systems that hang must not block the threads of other
    components.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[CancellationToken], T], seconds: float) -> T:
        """Return the result of the work.

        A cancelled caller returns at once, and the work stops soon after.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="toolyard-native")
        cancellation = CancellationToken(seconds)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, cancellation)
        finally:
            # Even if the caller was cancelled: the thread continues, and this tells it that its result is not
            # wanted.
            cancellation.cancel()

    def submit(self, work: Callable[[], None]) -> None:
        """Run something soon, without waiting for it."""
        if self._pool is not None:
            self._pool.submit(work)
        else:
            work()

    def close(self) -> None:
        """Accept no more work; running work stops at its deadline."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
