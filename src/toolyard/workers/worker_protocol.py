"""Framing between Toolyard and its worker processes: the length on a line, then as many bytes, in both
directions.

The worker programs import this module without site-packages, so it uses only the standard library.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable

__all__ = ["serve_requests"]

_MAX_MEMORY_BYTES = 1024 * 1024 * 1024


def serve_requests(handle_message: Callable[[bytes], bytes], *, max_open_files: int = 3) -> None:
    """Answer requests on standard input until it ends.

    The operating system ends a stuck process after the number of seconds in the last argument.
    ``max_open_files`` defaults to the standard streams only.
    """
    # The worker processes untrusted patterns and pages, so limits are set before the first request is read.
    _limit_resources(int(sys.argv[-1]), max_open_files)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while line := stdin.readline(32):
        length = int(line)
        message = stdin.read(length)
        if len(message) < length:
            return
        response = handle_message(message)
        stdout.write(b"%d\n" % len(response))
        stdout.write(response)
        stdout.flush()


def _limit_resources(seconds: int, max_open_files: int) -> None:
    if sys.platform == "win32":
        return
    import resource  # not on every system

    for resource_kind, limit in (
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, max_open_files),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource_kind, (limit, limit))
    # The CPU limit ends a process that is busy, the alarm one that waits.
    signal.alarm(seconds)
