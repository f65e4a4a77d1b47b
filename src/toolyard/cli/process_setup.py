"""Set up the process of the program: protect its secrets, and act as the first process of a container.

Servers that Toolyard starts run as the same user. Without protection, one could read every secret from
``/proc/PID/environ`` or ``/proc/PID/mem`` of its parent. Only the program does this: a process that embeds
the library belongs to another application, which may need core dumps and debuggers.

As process 1 it passes signals on and reaps orphans. A separate init program would do the same, but it would
keep the environment, with all secrets, where every server of the same user can read it.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count, takewhile

from toolyard.transports.stdio.watchdog import MARKER_VARIABLE

__all__ = ["erase_environment_block", "fork_from_init", "protect_process"]


_PR_SET_DUMPABLE = 4
_CHILD_MARKER = MARKER_VARIABLE.encode()
"""Another Toolyard that started this one finds it by this variable, so that it stays."""


def protect_process() -> None:
    """Call before any child or thread is started. Linux only; elsewhere it does nothing.

    A process that is not dumpable writes no core dump and cannot be traced by its user. Programs that it
    executes are dumpable again, so that the markers in their environment stay readable.
    """
    if sys.platform != "linux":
        return
    import ctypes  # 3 ms, which other systems do not need

    erase_environment_block()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def erase_environment_block() -> None:
    """Overwrite the values in the memory that ``/proc/self/environ`` shows, on Linux.

    ``os.environ`` and the environment that children inherit keep them, in memory of our own.
    """
    import ctypes

    initial = _environment_addresses()
    for name, value in os.environb.items():
        if name != _CHILD_MARKER:
            os.putenv(name, value)  # makes a copy
    # ``putenv`` has moved the variables to new memory. The strings that are no longer referred to are in the
    # block that /proc shows.
    for address in initial - _environment_addresses():
        name, _, value = ctypes.string_at(address).partition(b"=")
        ctypes.memset(address + len(name) + 1, 0, len(value))


def _environment_addresses() -> set[int]:
    """Return the address of each string ``NAME=value`` that the C library knows."""
    import ctypes

    block = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    every = (block[index] for index in count())
    return {address for address in takewhile(bool, every) if address} if block else set()


# Signals that report a fault of this process itself. POSIX leaves undefined what happens if they are blocked.
_SYNCHRONOUS = {signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP}


def fork_from_init() -> None:
    """Return in a child if this is process 1, else at once. Process 1 stays behind and ends with the child.

    Call before any thread is started.
    """
    if sys.platform == "win32" or os.getpid() != 1:
        return
    blocked = signal.valid_signals() - _SYNCHRONOUS
    # Blocked before the fork, so that a signal between the fork and ``sigwait`` stays pending. The kernel
    # would discard it otherwise: process 1 ignores signals without a handler.
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
            # As a shell reports it: 128 plus the number of the signal.
            os._exit(code if code >= 0 else 128 - code)
