"""Daily sums of calls and model requests, in both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.store.sql.test_migrations import code_of_revision, insert_old_entries, open_database

from toolyard.store import Database
from toolyard.types.audit import AuditEntry, ToolUsage, UsageGroup, UsageTotals, server_of_tool

MIDDAY = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = MIDDAY.date()


def make_call(
    target: str = "github/search",
    outcome: str = "ok",
    *,
    days_ago: int = 0,
    actor: str = "ann",
    **details: Any,
) -> AuditEntry:
    details = {"name": "github_search", "agent": None, "seconds": 0.5, **details}
    at = (MIDDAY - timedelta(days_ago)).timestamp()
    return AuditEntry(at, "tool.call", actor, target=target, outcome=outcome, details=details)


def make_request(actor: str = "ann", **details: Any) -> AuditEntry:
    return AuditEntry(MIDDAY.timestamp(), "model.request", actor, target="openai:gpt", details=details)


async def read(
    database: Database, group: UsageGroup, *, days: int = 30, person: str | None = None
) -> dict[str, UsageTotals]:
    sums = await database.usage.sum_by(group, TODAY - timedelta(days - 1), TODAY, person=person)
    return {each.key: each for each in sums}


async def test_calls_are_summed_by_day_person_server_tool_and_agent(database: Database) -> None:
    for entry in (
        make_call(),
        make_call(outcome="Unreachable", seconds=2.5),
        make_call(outcome="cancelled", days_ago=1),
        make_call("@bob/gh/issues/list", actor="bob", agent="helper"),
        make_call("@native/web_fetch", actor="bob"),
    ):
        await database.audit.write(entry)
    by_day = await read(database, UsageGroup.DAY)
    assert [(key, each.calls, each.failures) for key, each in by_day.items()] == [
        ("2026-03-09", 1, 0),
        ("2026-03-10", 4, 1),
    ]
    assert await read(database, UsageGroup.TOOL, person="ann") == {
        "github/search": UsageTotals("github/search", calls=3, failures=1, seconds=3.5, slowest_seconds=2.5)
    }
    servers = await read(database, UsageGroup.SERVER)
    assert {key: each.calls for key, each in servers.items()} == {"github": 3, "@bob/gh": 1, "@native": 1}
    assert {key: each.calls for key, each in (await read(database, UsageGroup.AGENT)).items()} == {
        "": 4,
        "helper": 1,
    }
    assert list(await read(database, UsageGroup.PERSON)) == ["ann", "bob"]
    assert list(await read(database, UsageGroup.DAY, days=1)) == ["2026-03-10"]


async def test_tokens_and_cost_of_models_are_summed(database: Database) -> None:
    await database.audit.write(make_request(input_tokens=100, output_tokens=20, cost=0.25))
    await database.audit.write(make_request(input_tokens=10, output_tokens=2, cost=None, agent="helper"))
    (model,) = (await read(database, UsageGroup.MODEL)).values()
    assert model == UsageTotals("openai:gpt", requests=2, input_tokens=110, output_tokens=22, cost=0.25)
    assert model.tokens == 132
    assert await read(database, UsageGroup.TOOL) == {}


async def test_names_that_callers_made_up_are_not_counted(database: Database) -> None:
    await database.audit.write(make_call("made/up", "Unreachable", name="made/up"))
    await database.audit.write(make_call("hidden/tool", "ToolRefused"))
    await database.audit.write(AuditEntry(MIDDAY.timestamp(), "tool.call.start", "ann", target="a/b"))
    assert await read(database, UsageGroup.TOOL) == {}


@pytest.mark.parametrize("person", [None, "ann"])
async def test_old_sums_are_deleted_and_newer_ones_kept(database: Database, person: str | None) -> None:
    now = datetime.now(UTC)
    for days in (0, 9, 11, 12, 75):
        at = (now - timedelta(days)).timestamp()
        await database.audit.write(AuditEntry(at, "tool.call", "ann", target="a/b"))
    # From the first of a month on, so that the sums of whole months count.
    first, last = (now.date() - timedelta(100)).replace(day=1), now.date()
    for kept_days in (10, 0):
        await database.expiry.delete_expired(0, kept_days)
        assert len(await database.usage.sum_by(UsageGroup.DAY, first, last, person=person)) == 2
    (usage,) = await database.usage.sum_by(UsageGroup.TOOL, last - timedelta(9), last, person=person)
    assert usage.calls == 2


async def test_whole_months_and_single_days_add_up(database: Database) -> None:
    """Sums of everybody are read from those of months where the period covers them."""
    for days_ago in range(100):
        database.audit.record(make_call(days_ago=days_ago, seconds=days_ago))
    await database.audit.write(make_call("files/read", actor="bob"))
    for days in (1, 10, 38, 39, 68, 100):
        for group in UsageGroup:
            everybody = await read(database, group, days=days)
            by_person = [await read(database, group, days=days, person=each) for each in ("ann", "bob")]
            keys = {key for each in by_person for key in each}
            assert set(everybody) == keys
            for key, total in everybody.items():
                parts = [each[key] for each in by_person if key in each]
                assert total.calls == sum(each.calls for each in parts)
                assert total.slowest_seconds == max(each.slowest_seconds for each in parts)
        assert everybody_calls(await read(database, UsageGroup.SERVER, days=days)) == days + 1


def everybody_calls(sums: dict[str, UsageTotals]) -> int:
    return sum(each.calls for each in sums.values())


async def test_totals_of_an_older_database_are_made_from_its_sums(
    database_url: str | None, tmp_path: Path
) -> None:
    with code_of_revision("0009"):
        old = await open_database(tmp_path, database_url)
        await insert_old_entries(old, [make_call(days_ago=each, agent="helper") for each in range(60)])
        await old.close()
    database = await open_database(tmp_path, database_url)
    await database.audit.write(make_call(seconds=9.0))
    for group in UsageGroup:
        assert await read(database, group, days=60) == await read(database, group, days=60, person="ann")
    await database.close()


async def test_sums_of_an_older_database_are_made_from_its_audit_log(
    database_url: str | None, tmp_path: Path
) -> None:
    entries = [make_call(), make_call(outcome="tool error"), make_call("x", "ToolRefused")]
    with code_of_revision("0009"):
        old = await open_database(tmp_path, database_url)
        await insert_old_entries(old, entries)
        await old.close()
    database = await open_database(tmp_path, database_url)
    await database.audit.write(make_call())
    assert await read(database, UsageGroup.TOOL) == {
        "github/search": UsageTotals("github/search", calls=3, failures=1, seconds=1.5, slowest_seconds=0.5)
    }
    await database.close()


def test_the_server_of_an_instance_has_its_owner() -> None:
    assert server_of_tool("@ann/gh/a/b") == "@ann/gh"
    assert server_of_tool("github/a/b") == "github"


async def test_calls_of_tools_are_counted_since_a_day(database: Database) -> None:
    noon = MIDDAY.timestamp()
    assert await database.usage.count_calls(noon) == ToolUsage()
    for entry in (make_call(), make_call(actor="bob"), make_call("github/list", days_ago=3)):
        await database.audit.write(entry)
    everybody = await database.usage.count_calls(noon - 7 * 86_400)
    begin = datetime(2026, 3, 7, tzinfo=UTC).timestamp()
    assert everybody == ToolUsage({"github/search": 2, "github/list": 1}, begin)
    assert await database.usage.count_calls(noon, person="ann") == ToolUsage({"github/search": 1}, noon)
    assert await database.usage.count_calls(noon + 86_400) == ToolUsage({}, noon + 86_400)
