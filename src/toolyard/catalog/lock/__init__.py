"""What was accepted of each server, and what is different now."""

from toolyard.catalog.lock.changes import Change, Kind, accepted, compare, pins_of
from toolyard.catalog.lock.file import FILE_NAME, lock_path, read_lock, write_lock
from toolyard.catalog.lock.keeper import LockKeeper, has_now
from toolyard.catalog.lock.locks import Locks
from toolyard.catalog.lock.pins import Lock, Pin, ServerPins
from toolyard.catalog.lock.registry import RegistryLock

__all__ = [
    "FILE_NAME",
    "Change",
    "Kind",
    "Lock",
    "LockKeeper",
    "Locks",
    "Pin",
    "RegistryLock",
    "ServerPins",
    "accepted",
    "compare",
    "has_now",
    "lock_path",
    "pins_of",
    "read_lock",
    "write_lock",
]
