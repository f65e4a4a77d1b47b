"""Ports for programs that are told where to listen.

A port that the kernel chose, let go again, may be somebody else's before the program binds it: every
connection that anybody opens takes one. These lie below those that the kernel chooses from, and each process
of pytest counts through a stretch of its own.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_CHOSEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST = 11_000
"""Browsers refuse some ports; none of those are from here on."""
_USUAL = 32_768
"""Where those that the kernel chooses begin, unless somebody changed it."""


def _stretch() -> range:
    """The ports of this process: those below the kernel's, cut in as many pieces as there are workers."""
    end = int(_CHOSEN.read_text().split()[0]) if _CHOSEN.exists() else _USUAL
    if end <= _FIRST:
        return range(0)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (end - _FIRST) // workers
    return range(_FIRST + mine * size, _FIRST + (mine + 1) * size)


@cache
def _counting() -> Iterator[int]:
    """Round and round. Where it begins is another place for everybody who runs tests on this machine."""
    stretch = _stretch()
    at = os.getpid() * 997 % max(len(stretch), 1)
    return itertools.cycle([*stretch[at:], *stretch[:at]] or [0])


def free_port() -> int:
    """A port of loopback on which nobody listens, and which nobody else is given."""
    for port in _counting():
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("unreachable: the count never ends")
