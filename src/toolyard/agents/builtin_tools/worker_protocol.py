"""How a program that works apart is spoken to: a length in a line, then as many bytes; the same way back.

Loaded by the programs themselves, where nothing is installed, so it uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable

__all__ = ["serve_requests"]

_MAX_MEMORY_BYTES = 1024 * 1024 * 1024


def serve_requests(handle_message: Callable[[bytes], bytes], *, max_open_files: int = 3) -> None:
    """Answer until nobody asks any more. What is stuck is ended by the system after so many seconds.

    ``files`` is how many can be open; by default no more than the standard streams."""
    _limit_resources(int(sys.argv[-1]), max_open_files)
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while line := stdin.readline(32):
        length = int(line)
        message = stdin.read(length)
        if len(message) < length:
            return
        said = handle_message(message)
        stdout.write(b"%d\n" % len(said))
        stdout.write(said)
        stdout.flush()


def _limit_resources(seconds: int, max_open_files: int) -> None:
    if sys.platform == "win32":
        return
    import resource  # not on every system

    for what, most in (
        (resource.RLIMIT_AS, _MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_NOFILE, max_open_files),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    signal.alarm(seconds)
