"""Errors of comparing with locks and of accepting changes.

ToolyardError
├── Outdated             the changes to accept are not the current ones
├── LockBroken           the lock file is invalid, so nothing can be compared with it
├── LockUnwritable       the lock file could not be written
└── PinsUnavailable      the stored definitions of a server cannot be read or written
"""

from toolyard.errors import ToolyardError

__all__ = ["LockBroken", "LockUnwritable", "Outdated", "PinsUnavailable"]


class Outdated(ToolyardError):
    """The changes to accept are not the current ones. Nothing was accepted."""


class LockBroken(ToolyardError):
    """The file was edited by hand, has merge conflicts, or has another version. Nothing was accepted."""


class LockUnwritable(ToolyardError):
    """The lock file cannot be written. Nothing was accepted."""


class PinsUnavailable(ToolyardError):
    """The definitions stored at a server's first use cannot be read or written."""
