"""The machine that a benchmark ran on, in a few words."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["cores", "describe"]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, str]:
    """Processor, cores, memory, system, Python and how busy it was; no names of machines or people."""
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processor": _processor(),
        "cores": str(cores()),
        "memory": f"{gigabytes:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
