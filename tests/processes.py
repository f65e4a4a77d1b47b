"""Processes started by tests."""

from __future__ import annotations

import psutil
from tests import prefork

__all__ = ["is_running", "is_shared", "own_descendants"]


def is_shared(process: psutil.Process) -> bool:
    """Return whether tests share it: the forking process, or one of the browser's. Raises psutil.Error."""
    return process.pid in prefork.process_ids() or process.name().startswith("chrom")


def is_running(pid: int) -> bool:
    """Return whether it runs. A zombie does not: in a container, orphans may never be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def own_descendants() -> set[psutil.Process]:
    """Return all descendants of this process, except those that tests share."""
    processes: set[psutil.Process] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if not is_shared(child):
                processes.add(child)
        except psutil.Error:
            continue
    return processes
