"""Audit entries for actions of the command line on the database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolyard.types.audit import AuditEntry

if TYPE_CHECKING:
    from toolyard.store import Database

__all__ = ["AUDIT_ACTOR_NAME", "record_audit_entry"]

AUDIT_ACTOR_NAME = "command line"
"""Actor of these entries; the operator of the command line has no account."""


async def record_audit_entry(database: Database, action: str, target: str = "", **details: object) -> None:
    """Write an entry durably. Raises StoreError."""
    entry = AuditEntry(
        at=time.time(), action=action, actor="", actor_name=AUDIT_ACTOR_NAME, target=target, details=details
    )
    await database.audit.write(entry)
