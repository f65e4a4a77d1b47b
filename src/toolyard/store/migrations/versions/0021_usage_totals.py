"""Add sums of everybody's usage by day and month, and fill them from the daily sums of each person.

Revision ID: 0021
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_SUMS = (
    "calls",
    "failures",
    "seconds",
    "slowest_seconds",
    "requests",
    "input_tokens",
    "output_tokens",
    "cost",
)
_FRACTIONS = ("seconds", "slowest_seconds", "cost")


def upgrade() -> None:
    number: TypeEngine[Any] = sa.BigInteger()
    fraction: TypeEngine[Any] = sa.Double(asdecimal=False)
    columns: dict[str, TypeEngine[Any]] = {
        **dict.fromkeys(("category", "period", "digest", "key"), sa.Text()),
        **{name: fraction if name in _FRACTIONS else number for name in _SUMS},
    }
    table = op.create_table(
        "usage_totals",
        *(sa.Column(name, kind, nullable=False) for name, kind in columns.items()),
        sa.PrimaryKeyConstraint("category", "period", "digest", name="pk_usage_totals"),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    months = connection.execute(sa.text("SELECT DISTINCT substr(day, 1, 7) FROM usage")).scalars().all()
    for category in ("day", "person", "server", "tool", "agent", "model"):
        for month in months:
            for period in ("day",) if category == "day" else ("day", "substr(day, 1, 7)"):
                rows = _sum_up(connection, category, period, month)
                if rows:
                    op.bulk_insert(table, rows)


def _sum_up(connection: sa.Connection, category: str, period: str, month: str) -> list[dict[str, Any]]:
    sums = ", ".join(f"{'max' if name == 'slowest_seconds' else 'sum'}({name})" for name in _SUMS)
    named = f" AND {category} <> ''" if category in ("server", "tool", "model") else ""
    query = sa.text(
        f"SELECT {period}, {category}, {sums} FROM usage"
        f" WHERE day BETWEEN :first AND :last{named} GROUP BY 1, 2"
    )
    found = connection.execute(query, {"first": f"{month}-01", "last": f"{month}-31"})
    return [_make_row(category, found_period, key, values) for found_period, key, *values in found]


def _make_row(category: str, period: str, key: str, values: Sequence[Any]) -> dict[str, Any]:
    encoded = key.encode()
    # PostgreSQL returns sums of integers as decimals.
    numbers = {
        name: float(value) if name in _FRACTIONS else int(value)
        for name, value in zip(_SUMS, values, strict=True)
    }
    digest = hashlib.sha256(b"%d:" % len(encoded) + encoded).hexdigest()
    return {"category": category, "period": period, "digest": digest, "key": key, **numbers}
