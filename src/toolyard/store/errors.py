"""Errors of the store.

ToolyardError
└── StoreError
    ├── DatabaseUnavailable      the database cannot be reached, read or written right now
    │   └── AuditUnavailable     the audit log cannot be written, so a call was not made
    ├── DatabaseUnusable         the URL, directory or file is not a database that Toolyard can use
    │   ├── DatabaseNewer        its tables were created by a later version of Toolyard
    │   └── DatabaseOutdated     its tables were created by an earlier version, and must be migrated
    ├── KeyMissing               there is no key to encrypt or decrypt with
    ├── KeyUnusable              the key is too short, or other users can read the key file
    ├── WrongKey                 the database was encrypted with another key
    ├── Unreadable               one stored secret was damaged or moved
    ├── Unstorable               the databases cannot store a value as it is
    ├── Conflict                 a row with the same key exists, or a referenced row does not
    └── StoreClosed              the store was closed
"""

from __future__ import annotations

from typing import ClassVar

from toolyard.errors import ToolyardError

__all__ = [
    "AuditUnavailable",
    "Conflict",
    "DatabaseNewer",
    "DatabaseOutdated",
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
    """Base class of all errors of the store."""


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, read or written right now.

    Its cause and hint name the database's address. They are for the log; clients get the public ones.
    """

    public_cause: ClassVar[str] = "Toolyard's database is not available"
    public_hint: ClassVar[str] = (
        "check whether your last change was saved, then try again later; the log has the cause"
    )
    retry_after: ClassVar[float] = 5.0
    """Seconds after which a client may retry."""


class AuditUnavailable(DatabaseUnavailable):
    """The audit log cannot be written, so the audited action was not carried out."""

    public_cause = "the call was not made, since the audit log cannot be written"
    public_hint = "try again later; the log has the cause"


class DatabaseUnusable(StoreError):
    """The URL, directory or file is not a database that Toolyard can use."""

    exit_code = 2


class DatabaseNewer(DatabaseUnusable):
    """The tables were created by a later version of Toolyard."""


class DatabaseOutdated(DatabaseUnusable):
    """The tables were created by an earlier version of Toolyard, and this process may not change them."""


class KeyMissing(StoreError):
    """The key to encrypt or decrypt with is missing."""

    exit_code = 2


class KeyUnusable(StoreError):
    """The key is too short, or its file cannot be read or is readable by other users."""

    exit_code = 2


class WrongKey(StoreError):
    """The database was encrypted with another key."""

    exit_code = 2


class Unreadable(StoreError):
    """One stored secret cannot be decrypted, although the key is right."""


class Unstorable(StoreError):
    """A value cannot be stored. Nothing was written."""


class Conflict(StoreError):
    """A concurrent change won: a row with the same key exists, or a referenced row was deleted.

    Nothing was written.
    """


class StoreClosed(StoreError):
    """The store was closed; nothing was written."""

    def __init__(self) -> None:
        super().__init__("the store was closed", hint="this process is stopping")
