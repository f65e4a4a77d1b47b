"""The duties of the first process of a container: pass signals on and reap orphans.

A separate init program would do the same, but it would keep the environment, with all secrets, where every
server of the same user can read it.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["fork_from_init"]

_SYNCHRONOUS = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}


def fork_from_init() -> None:
    """Return in a child if this is process 1, else at once. Process 1 stays behind and ends with the child.

    Call before any thread is started.
    """
    if sys.platform == "win32" or os.getpid() != 1:
        return
    blocked = signal.valid_signals() - _SYNCHRONOUS
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    while True:
        number = signal.sigwait(blocked)
        if number == signal.SIGCHLD:
            _reap(child)
        else:
            os.kill(child, number)


def _reap(child: int) -> None:
    """Reap everything that has ended, and end with the child's exit code once it is among it."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
