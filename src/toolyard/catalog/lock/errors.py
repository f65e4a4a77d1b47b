"""What can go wrong when somebody accepts.

ToolyardError
├── Outdated             what was to be accepted is not what there is: look again
├── LockBroken           the lock file cannot be believed, so nothing can be compared with it
└── LockUnwritable       the lock file could not be written
"""

from __future__ import annotations

from toolyard.errors import ToolyardError

__all__ = ["LockBroken", "LockUnwritable", "Outdated"]


class Outdated(ToolyardError):
    """What somebody saw and wants to accept is not what there is now. Nothing was accepted."""


class LockBroken(ToolyardError):
    """The file was edited by hand, merged halfway, or is of another version. Nothing was accepted."""


class LockUnwritable(ToolyardError):
    """The file cannot be written from here. Nothing was accepted."""
