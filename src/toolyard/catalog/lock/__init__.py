"""What was accepted of each server, and what is different now.

The registry's lock, and all locks together, are in ``registry`` and ``locks``: they need an event loop, which
a command that only reads the file has no use for.
"""

from toolyard.catalog.lock.changes import Change, ChangeKind, apply_changes, compare_pins, pin_contents
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
    "compare_pins",
    "lock_for_editing",
    "lock_path",
    "pin_contents",
    "pin_server_contents",
    "read_lock",
    "write_lock",
]
