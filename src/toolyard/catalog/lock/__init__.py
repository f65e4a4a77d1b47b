"""What was accepted of each server, and what is different now.

The registry's lock, and all locks together, are in ``registry`` and ``locks``: they need an event loop, which
a command that only reads the file has no use for.
"""

from toolyard.catalog.lock.active_lock import LockKeeper, has_now
from toolyard.catalog.lock.changes import Change, Kind, accepted, compare, pins_of
from toolyard.catalog.lock.lock_file import FILE_NAME, editing, lock_path, read_lock, write_lock
from toolyard.catalog.lock.pins import Lock, Pin, ServerPins

__all__ = [
    "FILE_NAME",
    "Change",
    "Kind",
    "Lock",
    "LockKeeper",
    "Pin",
    "ServerPins",
    "accepted",
    "compare",
    "editing",
    "has_now",
    "lock_path",
    "pins_of",
    "read_lock",
    "write_lock",
]
