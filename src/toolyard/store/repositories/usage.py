"""Daily sums of tool calls and model requests.

The audit log writes them in the transaction of its entries, so that both always agree, and pages stay fast
however many calls there were. The sums outlive the entries: each has its own retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, case, func, select

from toolyard.store.sql.dialects import build_insert
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.stored_values import MAX_INDEXED_CHARACTERS, clean_text, compute_digest
from toolyard.store.sql.tables import usage
from toolyard.types.audit import AuditEntry, ToolUsage, UsageGroup, UsageSums, server_of_tool

__all__ = ["MODEL_REQUEST_ACTION", "TOOL_CALL_ACTION", "SqlUsage", "add_usage"]

TOOL_CALL_ACTION = "tool.call"
MODEL_REQUEST_ACTION = "model.request"

_SUM_COLUMNS = [usage.c[each.name] for each in fields(UsageSums) if each.name != "key"]
_MAX_TEXT_CHARACTERS = 2_000


class SqlUsage:
    """Reads usage sums."""

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor

    async def sum_by(
        self, group: UsageGroup, first_day: date, last_day: date, *, person: str | None = None
    ) -> Sequence[UsageSums]:
        """Return the sums of a period, of one person or of everybody.

        Days are in order; other groups start with the one that has most calls and requests. Tools and
        servers have only calls, and models only requests.
        """
        column = usage.c[group]
        sums = [
            (func.max(each) if each is usage.c.slowest_seconds else func.sum(each)).label(each.name)
            for each in _SUM_COLUMNS
        ]
        query = (
            select(column.label("key"), *sums)
            .where(usage.c.day.between(first_day.isoformat(), last_day.isoformat()))
            .group_by(column)
        )
        if person is not None:
            query = query.where(usage.c.person == person)
        if group in (UsageGroup.SERVER, UsageGroup.TOOL, UsageGroup.MODEL):
            query = query.where(column != "")
        order = column if group is UsageGroup.DAY else func.sum(usage.c.calls + usage.c.requests).desc()
        rows = await self._executor.fetch_all(query.order_by(order, column))
        # PostgreSQL returns sums of integers as decimals.
        return [UsageSums(row.key, *(_as_number(each) for each in row[1:])) for row in rows]

    async def count_calls(self, since: float, *, person: str | None = None) -> ToolUsage:
        """Return the calls of each tool since the day of a time, of one person or of everybody."""
        first_day = datetime.fromtimestamp(since, UTC).date()
        sums = await self.sum_by(UsageGroup.TOOL, first_day, date.max, person=person)
        oldest = await self._executor.fetch_value(select(func.min(usage.c.day)))
        if oldest is None:
            return ToolUsage()
        begin = datetime.fromisoformat(oldest).replace(tzinfo=UTC).timestamp()
        return ToolUsage({each.key: each.calls for each in sums}, max(since, begin))

    async def has_calls(self, person: str) -> bool:
        """Return whether a person ever called a tool with success."""
        query = select(usage.c.day).where(usage.c.person == person, usage.c.calls > usage.c.failures).limit(1)
        return await self._executor.read_or_default(
            lambda connection: connection.execute(query).first() is not None, False
        )


def _as_number(value: Any) -> Any:
    return value if isinstance(value, float) else int(value)


def add_usage(connection: Connection, entries: Iterable[AuditEntry]) -> None:
    """Add audit entries about tool calls and model requests to the sums of their days."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        row = _build_row(entry)
        if row is None:
            continue
        known = rows.setdefault((row["day"], row["digest"]), row)
        if known is not row:
            _merge_row(known, row)
    if not rows:
        return
    statement = build_insert(connection, usage)
    added = {each.name: each + statement.excluded[each.name] for each in _SUM_COLUMNS}
    slowest, added_slowest = usage.c.slowest_seconds, statement.excluded.slowest_seconds
    added[slowest.name] = case((added_slowest > slowest, added_slowest), else_=slowest)
    # In one order for all replicas, because two that lock the same rows in different orders would deadlock.
    connection.execute(
        statement.on_conflict_do_update(index_elements=["day", "digest"], set_=added),
        [rows[key] for key in sorted(rows)],
    )


def _merge_row(known: dict[str, Any], row: dict[str, Any]) -> None:
    for column in _SUM_COLUMNS:
        name = column.name
        known[name] = max(known[name], row[name]) if name == "slowest_seconds" else known[name] + row[name]


def _build_row(entry: AuditEntry) -> dict[str, Any] | None:
    """Return the row that an entry adds, or None if it does not count."""
    details = entry.details
    row: dict[str, Any] = {
        "day": datetime.fromtimestamp(entry.at, UTC).date().isoformat(),
        "person": clean_text(entry.actor, MAX_INDEXED_CHARACTERS),
        "server": "",
        "tool": "",
        "agent": clean_text(str(details.get("agent") or ""), _MAX_TEXT_CHARACTERS),
        "model": "",
        **{column.name: 0 for column in _SUM_COLUMNS},
    }
    if entry.action == MODEL_REQUEST_ACTION:
        row["model"] = clean_text(entry.target, _MAX_TEXT_CHARACTERS)
        row["requests"] = 1
        row["input_tokens"] = int(details.get("input_tokens") or 0)
        row["output_tokens"] = int(details.get("output_tokens") or 0)
        row["cost"] = float(details.get("cost") or 0.0)
    elif entry.action == TOOL_CALL_ACTION and _is_known_tool(entry):
        row["tool"] = clean_text(entry.target, _MAX_TEXT_CHARACTERS)
        row["server"] = server_of_tool(row["tool"])
        row["calls"] = 1
        row["failures"] = int(entry.outcome not in ("ok", "cancelled"))
        row["seconds"] = row["slowest_seconds"] = float(details.get("seconds") or 0.0)
    else:
        return None
    row["digest"] = compute_digest(*(row[each] for each in ("person", "server", "tool", "agent", "model")))
    return row


def _is_known_tool(entry: AuditEntry) -> bool:
    """Return whether the call was about an existing tool.

    The target of others is the name that the caller made up, of which there can be any number.
    """
    if entry.outcome == "ToolRefused":
        return False
    return entry.outcome in ("ok", "tool error") or entry.target != entry.details.get("name")
