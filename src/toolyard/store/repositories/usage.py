"""Daily sums of tool calls and model requests.

The audit log writes them in the transaction of its entries, so that both always agree, and pages stay fast
however many calls there were. Sums of everybody are stored by day and by month for each group, since those of
each person add up to a million rows a year. The sums outlive the entries: each has its own retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import Connection, Executable, Select, Table, case, func, select

from toolyard.store.sql.dialects import build_insert
from toolyard.store.sql.executor import Repository
from toolyard.store.sql.stored_values import MAX_INDEXED_CHARACTERS, clean_text, compute_digest
from toolyard.store.sql.tables import usage, usage_totals
from toolyard.types.audit import AuditEntry, ToolUsage, UsageGroup, UsageTotals, server_of_tool

__all__ = ["MODEL_REQUEST_ACTION", "TOOL_CALL_ACTION", "SqlUsage", "add_usage"]

TOOL_CALL_ACTION = "tool.call"
MODEL_REQUEST_ACTION = "model.request"

_LABEL_NAMES = ("day", "person", "server", "tool", "agent", "model")
_SUM_NAMES = [each.name for each in fields(UsageTotals) if each.name != "key"]
_NAMED_GROUPS = (UsageGroup.SERVER, UsageGroup.TOOL, UsageGroup.MODEL)
"""Groups without a row for calls, or requests, that they are not about."""
_MAX_TEXT_CHARACTERS = 2_000
_DAY_SECONDS = 86_400


class SqlUsage(Repository):
    """Reads usage sums."""

    async def sum_by(
        self, group: UsageGroup, first_day: date, last_day: date, *, person: str | None = None
    ) -> Sequence[UsageTotals]:
        """Return the sums of a period, of one person or of everybody.

        Days are in order; other groups start with the one that has most calls and requests. Tools and
        servers have only calls, and models only requests.
        """
        query = _select_sums(group, first_day, last_day, person)
        # PostgreSQL returns sums of integers as decimals.
        return await self._executor.fetch_all(
            query, lambda row: UsageTotals(row[0], *map(_as_number, row[1:]))
        )

    async def count_calls(self, since: float, *, person: str | None = None) -> ToolUsage:
        """Return the calls of each tool since the day of a time, of one person or of everybody."""
        first_day = datetime.fromtimestamp(since, UTC).date()
        sums = await self.sum_by(UsageGroup.TOOL, first_day, datetime.now(UTC).date(), person=person)
        oldest = await self._executor.fetch_value(select(func.min(usage.c.day)))
        if oldest is None:
            return ToolUsage()
        begin = datetime.fromisoformat(oldest).replace(tzinfo=UTC).timestamp()
        return ToolUsage({each.key: each.calls for each in sums}, max(since, begin))

    async def has_successful_calls(self, person: str) -> bool:
        """Return whether a person ever called a tool with success."""
        query = select(usage.c.day).where(usage.c.person == person, usage.c.calls > usage.c.failures).limit(1)
        return bool(await self._executor.fetch_rows(query))


def _select_sums(
    group: UsageGroup, first_day: date, last_day: date, person: str | None
) -> Select[*tuple[Any, ...]]:
    if person is None:
        table, key = usage_totals, usage_totals.c.key
        periods = _list_periods(first_day, last_day, with_months=group is not UsageGroup.DAY)
        conditions = [usage_totals.c.category == group, usage_totals.c.period.in_(periods)]
    else:
        table, key = usage, usage.c[group]
        in_period = usage.c.day.between(first_day.isoformat(), last_day.isoformat())
        conditions = [in_period, usage.c.person == person]
        conditions += [key != ""] if group in _NAMED_GROUPS else []
    sums = [(func.max if name == "slowest_seconds" else func.sum)(table.c[name]) for name in _SUM_NAMES]
    order = [] if group is UsageGroup.DAY else [func.sum(table.c.calls + table.c.requests).desc()]
    return select(key, *sums).where(*conditions).group_by(key).order_by(*order, key)


def _list_periods(first_day: date, last_day: date, *, with_months: bool) -> list[str]:
    """Return the months and the remaining days that make up a period."""
    periods: list[str] = []
    day = first_day
    while day <= last_day:
        next_month = (day.replace(day=1) + timedelta(31)).replace(day=1)
        if with_months and day.day == 1 and next_month - timedelta(1) <= last_day:
            periods.append(day.isoformat()[:7])
            day = next_month
        else:
            periods.append(day.isoformat())
            day += timedelta(1)
    return periods


def _as_number(value: Any) -> Any:
    return value if isinstance(value, float) else int(value)


def add_usage(connection: Connection, entries: Iterable[AuditEntry]) -> None:
    """Add audit entries about tool calls and model requests to the sums of their days."""
    entries_by_labels: dict[tuple[Any, ...], list[AuditEntry]] = {}
    for entry in entries:
        # Most entries of a batch are alike: their labels are read once.
        key = (entry.at // _DAY_SECONDS, entry.action, entry.actor, entry.target, entry.details.get("agent"))
        entries_by_labels.setdefault(key, []).append(entry)
    sums_by_labels: dict[tuple[str, ...], dict[str, Any]] = {}
    for alike in entries_by_labels.values():
        added = _sum_usage(alike)
        if added is not None:
            known = sums_by_labels.setdefault(_read_labels(alike[0]), dict.fromkeys(_SUM_NAMES, 0))
            _merge_sums(known, added)
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for labels, sums in sums_by_labels.items():
        row = {**dict(zip(_LABEL_NAMES, labels, strict=True)), **sums, "digest": compute_digest(*labels[1:])}
        rows[row["day"], row["digest"]] = row
    if rows:
        _store_rows(connection, usage, rows)
        _store_rows(connection, usage_totals, _build_totals(rows.values()))


def _merge_sums(known: dict[str, Any], sums: Mapping[str, Any]) -> None:
    for name, value in sums.items():
        known[name] = max(known[name], value) if name == "slowest_seconds" else known[name] + value


def _store_rows(connection: Connection, table: Table, rows: dict[tuple[str, ...], dict[str, Any]]) -> None:
    """Add rows to those that are stored; their keys are the primary key of the table."""
    # In one order for all replicas, because two that lock the same rows in different orders would deadlock.
    connection.execute(_build_upsert(connection.dialect.name, table), [rows[key] for key in sorted(rows)])


@cache
def _build_upsert(dialect_name: str, table: Table) -> Executable:
    statement = build_insert(dialect_name, table)
    added = {name: table.c[name] + statement.excluded[name] for name in _SUM_NAMES}
    slowest, added_slowest = table.c.slowest_seconds, statement.excluded.slowest_seconds
    added[slowest.name] = case((added_slowest > slowest, added_slowest), else_=slowest)
    return statement.on_conflict_do_update(
        index_elements=[each.name for each in table.primary_key], set_=added
    )


def _build_totals(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the rows of totals that rows of sums add to, by primary key."""
    totals: dict[tuple[UsageGroup, str, str], dict[str, Any]] = {}

    def add(key: tuple[UsageGroup, str, str], row: Mapping[str, Any]) -> None:
        sums = {name: row[name] for name in _SUM_NAMES}
        if key in totals:
            _merge_sums(totals[key], sums)
        else:
            totals[key] = sums

    for row in rows:
        for group in UsageGroup:
            if row[group] or group not in _NAMED_GROUPS:
                add((group, row["day"], row[group]), row)
    for (group, day, key), sums in list(totals.items()):
        if group is not UsageGroup.DAY:
            add((group, day[:7], key), sums)
    built: dict[tuple[str, ...], dict[str, Any]] = {}
    for (group, period, key), sums in totals.items():
        digest = compute_digest(key)
        row = {"category": group.value, "period": period, "digest": digest, "key": key, **sums}
        built[group.value, period, digest] = row
    return built


def _sum_usage(alike: Sequence[AuditEntry]) -> dict[str, Any] | None:
    """Return what entries of one action add to sums, or None if none of them counts."""
    action = alike[0].action
    if action == MODEL_REQUEST_ACTION:
        details = [entry.details for entry in alike]
        return {
            "requests": len(details),
            "input_tokens": sum(int(each.get("input_tokens") or 0) for each in details),
            "output_tokens": sum(int(each.get("output_tokens") or 0) for each in details),
            "cost": sum(float(each.get("cost") or 0.0) for each in details),
        }
    calls = [entry for entry in alike if action == TOOL_CALL_ACTION and _is_known_tool(entry)]
    if not calls:
        return None
    seconds = [float(entry.details.get("seconds") or 0.0) for entry in calls]
    failures = sum(entry.outcome not in ("ok", "cancelled") for entry in calls)
    slowest = max(seconds)
    return {"calls": len(calls), "failures": failures, "seconds": sum(seconds), "slowest_seconds": slowest}


def _read_labels(entry: AuditEntry) -> tuple[str, ...]:
    """Return the values of ``_LABEL_NAMES`` for an entry that counts."""
    target = clean_text(entry.target, _MAX_TEXT_CHARACTERS)
    is_call = entry.action == TOOL_CALL_ACTION
    return (
        datetime.fromtimestamp(entry.at, UTC).date().isoformat(),
        clean_text(entry.actor, MAX_INDEXED_CHARACTERS),
        server_of_tool(target) if is_call else "",
        target if is_call else "",
        clean_text(str(entry.details.get("agent") or ""), _MAX_TEXT_CHARACTERS),
        "" if is_call else target,
    )


def _is_known_tool(entry: AuditEntry) -> bool:
    """Return whether the call was about an existing tool.

    The target of others is the name that the caller made up, of which there can be any number.
    """
    if entry.outcome == "ToolRefused":
        return False
    return entry.outcome in ("ok", "tool error") or entry.target != entry.details.get("name")
