"""What is kept: SQL tables, one repository a file, migrations, encryption."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.store.database import Database

__all__ = ["Database"]


def __getattr__(name: str) -> object:
    """Load SQLAlchemy with the first use of ``Database``: importing ``store.errors`` must not cost it."""
    if name != "Database":
        raise AttributeError(f"module 'toolyard.store' has no attribute '{name}'")
    from toolyard.store.database import Database

    globals()[name] = Database
    return Database
