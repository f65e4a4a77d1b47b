"""Free ports for programs that need a port number as an argument.

A port that the kernel chose and released may be taken by any other connection before the program binds it.
These ports are below the kernel's range, and each pytest process has its own part of them.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_KERNEL_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 11_000
"""Above all ports that browsers refuse."""
_USUAL_KERNEL_PORT = 32_768
"""First port of the kernel's usual range."""


def _port_range() -> range:
    """Return the ports of this process: an equal share for each worker, below the kernel's range."""
    end = (
        int(_KERNEL_PORT_RANGE.read_text().split()[0]) if _KERNEL_PORT_RANGE.exists() else _USUAL_KERNEL_PORT
    )
    if end <= _FIRST_PORT:
        return range(0)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # The replacement of a crashed worker has a higher number than there are workers.
    worker_number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    size = (end - _FIRST_PORT) // workers
    return range(_FIRST_PORT + worker_number * size, _FIRST_PORT + (worker_number + 1) * size)


@cache
def _cycle_ports() -> Iterator[int]:
    """Return a cycle of the ports. Its start depends on the process id, since several users may run tests."""
    stretch = _port_range()
    at = os.getpid() * 997 % max(len(stretch), 1)
    return itertools.cycle([*stretch[at:], *stretch[:at]] or [0])


def free_port() -> int:
    """Return a loopback port that is not in use and is given to this process only."""
    for port in _cycle_ports():
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("unreachable: the count never ends")
