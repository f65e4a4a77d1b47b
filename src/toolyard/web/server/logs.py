"""Log output of the server on standard error, as text lines or JSON."""

from __future__ import annotations

import logging
import sys
import time

import orjson

from toolyard.config.settings.choices import LogFormat, LogLevel

__all__ = ["start_logging"]


def start_logging(level: LogLevel, log_format: LogFormat, *, verbose: bool = False) -> None:
    """Send the logs of Toolyard and of uvicorn to standard error.

    Uvicorn logs at WARNING or above, because it would otherwise report each start and stop.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format is LogFormat.JSON else _TextFormatter())
    min_level = logging.DEBUG if verbose else logging.getLevelNamesMapping()[level.name]
    for name, logger_level in (("toolyard", min_level), ("uvicorn", max(min_level, logging.WARNING))):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.setLevel(logger_level)
        log.propagate = False


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")


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
        return orjson.dumps(line).decode()
