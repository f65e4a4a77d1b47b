"""Limits on the number of rows that one owner can create."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table, delete, func, select

from toolyard.errors import LimitReached

__all__ = ["delete_all_but_newest", "require_room"]


def delete_all_but_newest(
    connection: Connection, table: Table, condition: Any, newest_by: Any, max_rows: int
) -> int:
    """Delete the oldest matching rows beyond a number; return the number of deleted rows.

    For rows whose owner would rather lose the oldest than be refused a new one.
    """
    [key] = table.primary_key.columns
    excess = select(key).where(condition).order_by(newest_by.desc(), key).offset(max_rows)
    return connection.execute(delete(table).where(key.in_(excess))).rowcount


def require_room(
    connection: Connection, table: Table, condition: Any, max_rows: int, label: str, setting: str
) -> None:
    """Raise LimitReached if there are as many matching rows as allowed; 0 means no limit.

    Concurrent transactions of PostgreSQL may exceed the limit by one row each.
    """
    if max_rows and connection.execute(select(func.count()).where(condition)).scalar_one() >= max_rows:
        raise LimitReached(
            f"You have {max_rows:,} {label}, which is the limit.",
            hint=f"Delete {label} that you no longer need, or ask an admin to raise {setting}.",
        )
