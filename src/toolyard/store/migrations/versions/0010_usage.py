"""Add daily sums of tool calls, and fill them from the audit log.

Revision ID: 0010
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0010"
down_revision = "0009"

_BATCH_ENTRIES = 20_000


def upgrade() -> None:
    number: TypeEngine[Any] = sa.BigInteger()
    fraction: TypeEngine[Any] = sa.Double(asdecimal=False)
    columns: dict[str, TypeEngine[Any]] = {
        **dict.fromkeys(("day", "digest", "person", "server", "tool", "agent", "model"), sa.Text()),
        **dict.fromkeys(("calls", "failures"), number),
        **dict.fromkeys(("seconds", "slowest_seconds"), fraction),
        **dict.fromkeys(("requests", "input_tokens", "output_tokens"), number),
        "cost": fraction,
    }
    op.create_table(
        "usage",
        *(sa.Column(name, kind, nullable=False) for name, kind in columns.items()),
        sa.PrimaryKeyConstraint("day", "digest", name="pk_usage"),
    )
    connection, after = op.get_bind(), 0
    names = ", ".join(columns)
    insert = sa.text(
        f"INSERT INTO usage ({names}) VALUES (:{', :'.join(columns)}) ON CONFLICT (day, digest) DO UPDATE SET"
        " calls = usage.calls + excluded.calls, failures = usage.failures + excluded.failures,"
        " seconds = usage.seconds + excluded.seconds, slowest_seconds ="
        " CASE WHEN excluded.slowest_seconds > usage.slowest_seconds THEN excluded.slowest_seconds"
        " ELSE usage.slowest_seconds END"
    )
    # In batches, since the sums of a long log need not fit into memory.
    query = sa.text(
        "SELECT id, at, actor, target, outcome, details FROM audit"
        " WHERE action = 'tool.call' AND outcome <> 'ToolRefused' AND id > :after ORDER BY id LIMIT :limit"
    )
    while entries := connection.execute(query, {"after": after, "limit": _BATCH_ENTRIES}).all():
        rows = _sum_calls(entries)
        if rows:
            connection.execute(insert, rows)
        after = entries[-1].id
    op.create_index("ix_usage_person_day", "usage", ["person", "day"])


def _sum_calls(entries: Sequence[Any]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for _, at, person, tool, outcome, body in entries:
        details = json.loads(body)
        # The target of a call of an unknown tool is the name that the caller made up.
        if outcome not in ("ok", "tool error") and tool == details.get("name"):
            continue
        first, _, rest = tool.partition("/")
        is_instance = first.startswith("@") and first != "@native"
        server = f"{first}/{rest.partition('/')[0]}" if is_instance else first
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        key = (person, server, tool, details.get("agent") or "", "")
        row = sums.get((day, *key))
        if row is None:
            row = sums[day, *key] = _make_row(day, key)
        duration = details.get("seconds") or 0.0
        row["calls"] += 1
        row["failures"] += outcome not in ("ok", "cancelled")
        row["seconds"] += duration
        row["slowest_seconds"] = max(row["slowest_seconds"], duration)
    return list(sums.values())


def _make_row(day: str, key: tuple[str, ...]) -> dict[str, Any]:
    hashed = hashlib.sha256()
    for part in key:
        encoded = part.encode()
        hashed.update(b"%d:" % len(encoded) + encoded)
    return {
        "day": day,
        "digest": hashed.hexdigest(),
        **dict(zip(("person", "server", "tool", "agent", "model"), key, strict=True)),
        **dict.fromkeys(("calls", "failures", "requests", "input_tokens", "output_tokens"), 0),
        **dict.fromkeys(("seconds", "slowest_seconds", "cost"), 0.0),
    }
