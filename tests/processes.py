"""The processes below the one that runs the tests."""

from __future__ import annotations

import psutil

__all__ = ["below_us", "lives", "of_the_browser"]


def of_the_browser(process: psutil.Process) -> bool:
    """Whether it is one of those that the browser starts and ends as it likes. Raises psutil.Error."""
    return process.name().startswith("chrom")


def lives(pid: int) -> bool:
    """Whether it runs. One that ended may stay until its parent looks, and that of orphans may never do so:
    the first process of a container is often none that cares."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def below_us() -> set[psutil.Process]:
    """All of them but those of the browser."""
    found: set[psutil.Process] = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if not of_the_browser(child):
                found.add(child)
        except psutil.Error:
            continue
    return found
