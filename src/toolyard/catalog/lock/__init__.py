"""Locks: the accepted tool definitions of each server, and the changes since they were accepted.

This package may import ``config`` for reading and writing files. ``registry_lock``, ``first_use`` and
``combined_locks`` are not imported here, since they need asyncio, which commands that only read ``mcp.lock``
can do without. Start reading at ``changes.compare_pins``, then ``lock_file.LockFile``.
"""

from toolyard.catalog.lock.changes import Change, ChangeKind, apply_changes, build_pins, compare_pins
from toolyard.catalog.lock.lock_file import (
    LOCK_FILE_NAME,
    LockFile,
    lock_for_editing,
    lock_path,
    pin_server_contents,
    read_lock,
    write_lock,
)
from toolyard.catalog.lock.pins import Pin, PinsByServer, ServerPins

__all__ = [
    "LOCK_FILE_NAME",
    "Change",
    "ChangeKind",
    "LockFile",
    "Pin",
    "PinsByServer",
    "ServerPins",
    "apply_changes",
    "build_pins",
    "compare_pins",
    "lock_for_editing",
    "lock_path",
    "pin_server_contents",
    "read_lock",
    "write_lock",
]
