"""Persistent storage in SQLite or PostgreSQL, with encrypted secrets.

``Database`` opens a database and holds one repository for each kind of record; start reading there.
``repositories`` holds them, ``sql`` runs the statements, ``change_feed`` notifies other processes, and
``locks`` excludes them. Services above import these classes for type checking only, since SQLAlchemy is slow
to load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.store.database import Database

__all__ = ["Database"]


def __getattr__(name: str) -> object:
    """Import ``Database`` on first use, so that importing ``store.errors`` does not load SQLAlchemy."""
    if name != "Database":
        raise AttributeError(f"module 'toolyard.store' has no attribute '{name}'")
    from toolyard.store.database import Database

    globals()[name] = Database
    return Database
