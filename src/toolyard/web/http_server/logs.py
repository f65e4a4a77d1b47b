"""Log output of the server on standard error, as text lines or JSON."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

from toolyard.config.settings.table import LogFormat, LogLevel
from toolyard.types.log_formatter import TextFormatter

__all__ = ["WarningThrottle", "start_logging"]

_MAX_WARNINGS_PER_INTERVAL = 20
_INTERVAL_SECONDS = 60.0
_MAX_COUNTED_WARNINGS = 1_000


def start_logging(level: LogLevel, log_format: LogFormat, *, verbose: bool = False) -> None:
    """Send the logs of Toolyard and of uvicorn to standard error.

    Uvicorn logs at WARNING or above, because it would otherwise report each start and stop.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(WarningThrottle())
    text_formatter = TextFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else text_formatter)
    min_level = logging.DEBUG if verbose else logging.getLevelNamesMapping()[level.name]
    for name, logger_level in (("toolyard", min_level), ("uvicorn", max(min_level, logging.WARNING))):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.setLevel(logger_level)
        log.propagate = False


class WarningThrottle(logging.Filter):
    """Limits warnings of the same kind, so that neither clients nor servers can flood the log.

    Warnings are of the same kind if they differ in their arguments only. Errors are always logged.
    """

    def __init__(
        self,
        max_per_interval: int = _MAX_WARNINGS_PER_INTERVAL,
        interval_seconds: float = _INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._max_per_interval = max_per_interval
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        key, now = (record.name, str(record.msg)), self._clock()
        started_at, count = self._counts.get(key, (now, 0))
        if now - started_at >= self._interval_seconds:
            suppressed = count - self._max_per_interval
            if suppressed > 0:
                record.msg, record.args = f"{record.getMessage()} ({suppressed:,} more were not logged)", ()
            started_at, count = now, 0
        if len(self._counts) >= _MAX_COUNTED_WARNINGS:
            self._counts.clear()
        self._counts[key] = (started_at, count + 1)
        return count < self._max_per_interval


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        # Unlike orjson, it accepts lone surrogates, and escapes hidden characters: all but this one.
        return json.dumps(line).replace("\x7f", "\\u007f")
