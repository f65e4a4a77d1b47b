"""The processes below the one that runs the tests."""

from __future__ import annotations

import psutil
from tests import prefork

__all__ = ["below_us", "is_shared", "lives"]


def is_shared(process: psutil.Process) -> bool:
    """Return whether tests share it: the process that forks commands, or one of the browser, which starts and
    ends its own as it likes. Raises psutil.Error."""
    return process.pid in prefork.process_ids() or process.name().startswith("chrom")


def lives(pid: int) -> bool:
    """Whether it runs. One that ended may stay until its parent looks, and that of orphans may never do so:
    the first process of a container is often none that cares."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def below_us() -> set[psutil.Process]:
    """Return all of them but those that tests share."""
    found: set[psutil.Process] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if not is_shared(child):
                found.add(child)
        except psutil.Error:
            continue
    return found
