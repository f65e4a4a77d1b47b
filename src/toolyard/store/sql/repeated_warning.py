"""Warning about a repeated failure, logged once and then at growing intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["RepeatedWarning"]

_FIRST_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 60.0, 3600.0


class RepeatedWarning:
    """Warning about one condition. Call ``warn`` at every failure and ``clear`` at every success."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._interval = 0.0
        self._next_log_at = 0.0
        self._suppressed_count = 0

    def warn(self, message: str) -> None:
        """Log the message, or count it if the interval since the last one has not passed."""
        now = self._clock()
        if self._interval and now < self._next_log_at:
            self._suppressed_count += 1
            return
        more = (
            f" ({self._suppressed_count:,} more failures since the last message)"
            if self._suppressed_count
            else ""
        )
        self._log.warning("%s%s", message, more)
        # Double the interval, so that an outage of hours adds few lines to the log.
        self._interval = min(max(self._interval * 2, _FIRST_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        self._next_log_at, self._suppressed_count = now + self._interval, 0

    def clear(self, message: str) -> None:
        """Log a recovery, if a warning was logged before."""
        if self._interval:
            self._log.info("%s", message)
        self._interval, self._suppressed_count = 0.0, 0
