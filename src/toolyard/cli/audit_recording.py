"""Audit entries for actions of the command line on the database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolyard.config import load_settings
from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from pathlib import Path

    from toolyard.store import Database

__all__ = ["AUDIT_ACTOR_NAME", "record_audit_entry", "record_if_database_exists"]

AUDIT_ACTOR_NAME = "command line"
"""Actor of these entries; the operator of the command line has no account."""


async def record_audit_entry(database: Database, action: str, target: str = "", **details: object) -> None:
    """Write an entry durably. Raises StoreError."""
    entry = AuditEntry(
        at=time.time(), action=action, actor="", actor_name=AUDIT_ACTOR_NAME, target=target, details=details
    )
    await database.audit.write(entry)


async def record_if_database_exists(
    data_dir: Path, action: str, details_by_target: Mapping[str, Mapping[str, object]]
) -> None:
    """Write an entry for each target if a server has used the data directory. Raises StoreError.

    For actions on files, which need no database themselves.
    """
    from toolyard.store.lazy_database import LazyDatabase

    lazy_database = LazyDatabase(load_settings(data_dir), data_dir)
    try:
        if (database := await lazy_database.open_if_exists()) is not None:
            for target, details in details_by_target.items():
                await record_audit_entry(database, action, target, **details)
    finally:
        await lazy_database.close()
