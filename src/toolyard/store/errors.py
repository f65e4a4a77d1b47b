"""What can be wrong with the store.

ToolyardError
└── StoreError
    ├── DatabaseUnavailable      the database cannot be reached, read or written right now
    │   └── AuditUnavailable     the audit log cannot be written, so a call was not made
    ├── DatabaseUnusable         a URL, folder or file that can be no database of ours
    │   └── DatabaseNewer        its tables were made by a later version of Toolyard
    ├── KeyMissing               there is no key to encrypt with, or to read what is stored
    ├── KeyUnusable              a key that is too short, or a key file that others can read
    ├── WrongKey                 what is stored was encrypted with another key
    ├── Unreadable               one stored secret was damaged or moved
    ├── Unstorable               a value that no database can hold as it is
    ├── Conflict                 what a row belongs to is gone, or there is one like it
    └── StoreClosed              the store was closed
"""

from __future__ import annotations

from typing import ClassVar

from toolyard.errors import ToolyardError

__all__ = [
    "AuditUnavailable",
    "Conflict",
    "DatabaseNewer",
    "DatabaseUnavailable",
    "DatabaseUnusable",
    "KeyMissing",
    "KeyUnusable",
    "StoreClosed",
    "StoreError",
    "Unreadable",
    "Unstorable",
    "WrongKey",
]


class StoreError(ToolyardError):
    """Something is wrong with the store."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, read or written right now."""

    retry_after: ClassVar[float] = 5.0
    """Seconds after which a client may try again."""


class AuditUnavailable(DatabaseUnavailable):
    """The audit log cannot be written. Nothing was done."""


class DatabaseUnusable(StoreError):
    """What was named is no database that Toolyard can use."""

    exit_code = 2


class DatabaseNewer(DatabaseUnusable):
    """The database belongs to a later version of Toolyard."""


class KeyMissing(StoreError):
    """There is no key."""

    exit_code = 2


class KeyUnusable(StoreError):
    """There is a key, but it must not be used as it is."""

    exit_code = 2


class WrongKey(StoreError):
    """The database was encrypted with another key."""

    exit_code = 2


class Unreadable(StoreError):
    """One stored secret cannot be decrypted though the key is right."""


class Unstorable(StoreError):
    """A value that cannot be stored. Nothing was written."""


class Conflict(StoreError):
    """Somebody else was quicker: what a row belongs to is gone, or there is one like it. Nothing was
    written."""


class StoreClosed(StoreError):
    """The store was closed; nothing was written."""
