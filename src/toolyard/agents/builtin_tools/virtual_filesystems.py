"""File systems that hold no files: what lies in them tells about processes and the machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["pseudo_devices"]

_TYPES = """
autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs
proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs
"""
_PSEUDO = frozenset(_TYPES.split())
_TABLE = Path("/proc/self/mountinfo")
_DEV = "/dev"


def pseudo_devices() -> frozenset[int]:
    """The devices, as ``st_dev`` names them, of all such file systems that are mounted."""
    try:
        lines = _TABLE.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return frozenset({os.stat(_DEV).st_dev}) if os.path.ismount(_DEV) else frozenset()
    return frozenset(device for line in lines if (device := _pseudo(line)) is not None)


def _pseudo(line: str) -> int | None:
    """``36 35 98:0 / /mnt rw - proc proc rw``: the device of a line whose type is one of these."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 3 or not kind or kind[0] not in _PSEUDO:
        return None
    major, _, minor = fields[2].partition(":")
    return os.makedev(int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
