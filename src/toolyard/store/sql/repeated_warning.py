"""Warning about a repeated failure, logged once and then at growing intervals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["RepeatedWarning"]

_FIRST_INTERVAL_SECONDS, _MAX_INTERVAL_SECONDS = 60.0, 3600.0


class RepeatedWarning:
    """Warning about one condition. Call ``warn`` at every failure and ``clear`` at every success.

    A condition that comes and goes, such as a disk on which little entries still fit, counts as lasting: the
    intervals begin anew only after a whole interval without a failure.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._interval = 0.0
        self._next_log_at = self._last_failure_at = -_MAX_INTERVAL_SECONDS
        self._suppressed_count = 0
        self._is_recovery_due = False

    def warn(self, message: str) -> None:
        """Log the message, or count it if the interval since the last one has not passed."""
        now = self._clock()
        quiet_seconds, self._last_failure_at = now - self._last_failure_at, now
        if now < self._next_log_at:
            self._suppressed_count += 1
            return
        if quiet_seconds > self._interval:
            self._interval, self._suppressed_count = 0.0, 0
        more = (
            f" ({self._suppressed_count:,} more failures since the last message)"
            if self._suppressed_count
            else ""
        )
        self._log.warning("%s%s", message, more)
        # Double the interval, so that an outage of hours adds few lines to the log.
        self._interval = min(max(self._interval * 2, _FIRST_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        self._next_log_at, self._suppressed_count = now + self._interval, 0
        self._is_recovery_due = True

    def clear(self, message: str) -> None:
        """Log a recovery, if a warning was logged since the last one."""
        if self._is_recovery_due:
            self._log.info("%s", message)
        self._is_recovery_due = False
