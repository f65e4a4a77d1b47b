"""A warning about something that fails again and again: logged once, then at growing intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["RepeatedWarning"]

_FIRST_INTERVAL, _LONGEST_INTERVAL = 60.0, 3600.0


class RepeatedWarning:
    """Of one condition. Call ``warn`` at every failure and ``clear`` when it works again."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._interval = 0.0
        self._next = 0.0
        self._unlogged = 0

    def warn(self, message: str) -> None:
        """Log it, unless the same condition was logged a short while ago."""
        now = self._clock()
        if self._interval and now < self._next:
            self._unlogged += 1
            return
        more = f" ({self._unlogged:,} more failures since the last message)" if self._unlogged else ""
        self._log.warning("%s%s", message, more)
        self._interval = min(max(self._interval * 2, _FIRST_INTERVAL), _LONGEST_INTERVAL)
        self._next, self._unlogged = now + self._interval, 0

    def clear(self, message: str) -> None:
        """Log that it works again, if it did not."""
        if self._interval:
            self._log.info("%s", message)
        self._interval, self._unlogged = 0.0, 0
