"""What can go wrong when somebody accepts.

ToolyardError
├── Outdated             what was to be accepted is not what there is: look again
├── LockBroken           the lock file cannot be believed, so nothing can be compared with it
├── LockUnwritable       the lock file could not be written
└── PinsUnavailable      the stored definitions of a server cannot be read or written
"""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["LockBroken", "LockUnwritable", "Outdated", "PinsUnavailable"]


class Outdated(ToolyardError):
    """What somebody saw and wants to accept is not what there is now. Nothing was accepted."""


class LockBroken(ToolyardError):
    """The file was edited by hand, merged halfway, or is of another version. Nothing was accepted."""


class LockUnwritable(ToolyardError):
    """The file cannot be written from here. Nothing was accepted."""


class PinsUnavailable(ToolyardError):
    """The definitions that were stored at a server's first use cannot be read or written now."""
