"""What was accepted of each server, and what is different now."""

from toolyard.catalog.lock.changes import Change, Kind, accepted, compare, pins_of
from toolyard.catalog.lock.file import FILE_NAME, lock_path, read_lock, write_lock
from toolyard.catalog.lock.keeper import LockKeeper
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
    "lock_path",
    "pins_of",
    "read_lock",
    "write_lock",
]
