"""When a connection may be made again: after crashes, after floods of messages, and after it was idle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

__all__ = ["Backoff", "IdleTimer"]

_STABLE_AFTER_SECONDS = 60.0
"""Seconds in use after which earlier crashes and floods are forgotten."""


class Backoff:
    """Counts consecutive crashes and floods of one server, and the delays that follow from them."""

    def __init__(self, flood_delays: Sequence[float], restart_delays: Sequence[float]) -> None:
        """``flood_delays`` are seconds, for the first flood and each one after; ``restart_delays`` those
        before each consecutive restart, after the last of which there is none."""
        self._flood_delays = flood_delays
        self._restart_delays = restart_delays
        self.reset()

    def reset(self) -> None:
        """Forget all failures."""
        self.permanent_failure: str | None = None
        """Reason why the server is not started again by a call."""
        self.crashes = 0
        self._floods = 0
        self._blocked_until = 0.0

    def forget_if_stable(self, seconds: float) -> None:
        """Forget earlier failures if the connection worked for so long, which proves that the server does."""
        if seconds > _STABLE_AFTER_SECONDS:
            self.crashes = self._floods = 0

    def count_crash(self) -> float | None:
        """Count a crash. Return the seconds before the next start, or None if there were too many."""
        if self.crashes >= len(self._restart_delays):
            return None
        self.crashes += 1
        return self._restart_delays[self.crashes - 1]

    def block_after_flood(self) -> float:
        """Refuse connections for a while, longer after each flood. Return the seconds."""
        delay = self._flood_delays[min(self._floods, len(self._flood_delays) - 1)]
        self._floods += 1
        self._blocked_until = time.monotonic() + delay
        return delay

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which connections are still refused; negative or zero if they are not."""
        return self._blocked_until - time.monotonic()


class IdleTimer:
    """Calls a function when a connection has been unused for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._handle: asyncio.TimerHandle | None = None
        self.is_running = False
        self.idle_since = 0.0
        """Time of the last use, on the monotonic clock. Its owner sets it after each use."""

    def start(self, on_idle: Callable[[], None]) -> None:
        """Begin to count from now.

        Only a running timer refers to ``on_idle``: a connection that is closed is freed at once.
        """
        self.idle_since = time.monotonic()
        if not self.is_running:
            self._schedule(self._seconds, on_idle)

    def _schedule(self, seconds: float, on_idle: Callable[[], None]) -> None:
        self.is_running = True
        self._handle = asyncio.get_running_loop().call_later(seconds, self._check, on_idle)

    def _check(self, on_idle: Callable[[], None]) -> None:
        # One timer that checks again when it fires is cheaper than cancelling and creating one per use.
        left = self.idle_since + self._seconds - time.monotonic()
        if left > 0:
            self._schedule(left, on_idle)
        else:
            self.cancel()
            on_idle()

    def cancel(self) -> None:
        self.is_running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
