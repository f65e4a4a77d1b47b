"""File systems that hold no files: what lies in them tells about processes and the machine."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["virtual_device_ids"]

_VIRTUAL_FILESYSTEM_NAMES = """
autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs
proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs
"""
_VIRTUAL_FILESYSTEMS = frozenset(_VIRTUAL_FILESYSTEM_NAMES.split())
_MOUNT_TABLE_PATH = Path("/proc/self/mountinfo")
_DEVICE_FOLDER = "/dev"


def virtual_device_ids() -> frozenset[int]:
    """The devices, as ``st_dev`` names them, of all such file systems that are mounted."""
    try:
        lines = _MOUNT_TABLE_PATH.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return frozenset({os.stat(_DEVICE_FOLDER).st_dev}) if os.path.ismount(_DEVICE_FOLDER) else frozenset()
    return frozenset(device for line in lines if (device := _parse_virtual_device(line)) is not None)


def _parse_virtual_device(line: str) -> int | None:
    """``36 35 98:0 / /mnt rw - proc proc rw``: the device of a line whose type is one of these."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 3 or not kind or kind[0] not in _VIRTUAL_FILESYSTEMS:
        return None
    major, _, minor = fields[2].partition(":")
    return os.makedev(int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
