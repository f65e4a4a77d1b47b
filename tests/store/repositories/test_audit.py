"""The audit log, in both databases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.store.sql.test_migrations import code_of_revision, insert_old_entries, open_database

from toolyard.store import Database
from toolyard.store.errors import DatabaseUnavailable, StoreClosed
from toolyard.store.repositories.audit import SqlAuditLog
from toolyard.types.account import Role, User
from toolyard.types.audit import AuditEntry
from toolyard.types.registry import Instance, RegistryServer

if TYPE_CHECKING:
    from collections.abc import Awaitable

NOW_SECONDS = 1_800_000_000.0


def entry(number: int = 0, **more: Any) -> AuditEntry:
    return AuditEntry(**{"at": NOW_SECONDS + number, "action": "tool.call", "actor": "ann", **more})


async def page(database: Database, **more: Any) -> list[AuditEntry]:
    words: dict[str, Any] = {"before": None, "limit": 100, "action": None, "actor": None, **more}
    return list(await database.audit.entries(**words))


async def test_written_entries_are_readable_at_once(database: Database) -> None:
    full = entry(
        actor_name="Ann",
        target="github/search",
        outcome="error",
        address="192.0.2.1",
        details={"duration": 1.5, "tags": ["a", None, True]},
    )
    await database.audit.write(full)
    (found_entry,) = await page(database)
    assert found_entry.id > 0
    assert AuditEntry(**{**{n: getattr(found_entry, n) for n in AuditEntry.__slots__}, "id": 0}) == full


async def test_noted_entries_are_readable_soon_and_in_order(database: Database) -> None:
    for number in range(900):
        database.audit.record(entry(number))
    entries: list[AuditEntry] = []
    async with asyncio.timeout(30):
        while len(entries) < 900:
            await asyncio.sleep(0.02)
            entries = await page(database, limit=1_000)
    assert [one.at - NOW_SECONDS for one in entries] == list(range(899, -1, -1))


async def test_entries_about_a_server_are_those_of_its_instances_and_tools_too(
    database: Database, ann: User, server: RegistryServer
) -> None:
    await database.registry.add_server(server)
    for number, slug in enumerate(("one", "a-longer-one")):
        instance = Instance(server.id, "c-public", slug, slug, id=f"instance-{number}", user_id=ann.id)
        await database.registry.add_instance(instance)
    core = f"@{ann.id}/one"
    about = [server.id, f"{server.id}/tool", "instance-0", core, f"{core}/tool", f"{core}/a/b"]
    about += [f"@{ann.id}/a-longer-one/tool"]
    others = [f"{server.id}0", f"{server.id}0/tool", f"{core}0", f"{core}0/tool", f"@{ann.id}/tw/tool"]
    for target in (*about, *others, "", "@"):
        action = "instance.edit" if target == "instance-0" else "tool.call"
        database.audit.record(entry(action=action, target=target))
    database.audit.record(entry(action="user.add", target=server.id))
    await database.audit.write(entry(target="50%_/tool"))
    assert [one.target for one in await page(database, server=server.id)] == about[::-1]
    assert [one.target for one in await page(database, server="50%_")] == ["50%_/tool"]
    assert await page(database, server="50__") == []
    # Entries stay with the server when the instance is gone.
    await database.registry.delete_instance(ann.id, "instance-0")
    assert len(await page(database, server=server.id)) == len(about)


async def test_filters_can_be_combined(database: Database) -> None:
    for number in range(40):
        await database.audit.write(
            entry(
                number,
                actor="ann" if number % 2 else "bob",
                action="server.edit" if number % 5 == 0 else "tool.call",
                target="github" if number % 5 == 0 else "github/x" if number % 3 else "files/x",
                outcome="Unreachable" if number % 7 == 0 else "ok",
            )
        )

    async def numbers(**filters: Any) -> list[int]:
        return [int(one.at - NOW_SECONDS) for one in await page(database, **filters)]

    assert await numbers(actor="ann", succeeded=False) == [35, 21, 7]
    assert await numbers(action="server.edit", actor="ann") == [35, 25, 15, 5]
    assert await numbers(action="tool.call", actor="bob", server="files", since=NOW_SECONDS + 10) == [
        36,
        24,
        18,
        12,
    ]
    assert await numbers(action="server.edit", server="github", succeeded=False) == [35, 0]
    assert await numbers(succeeded=True, server="files", actor="ann") == [39, 33, 27, 9, 3]
    assert await numbers(since=NOW_SECONDS + 38) == [39, 38]
    assert await numbers(since=NOW_SECONDS + 40) == []


async def test_entries_that_were_written_out_of_order_are_found_by_time(database: Database) -> None:
    """Replicas write their batches when they like, so that ids follow time only roughly."""
    for number in (5, 9, 3, 8, 1, 7):
        await database.audit.write(entry(number))
    assert [one.at - NOW_SECONDS for one in await page(database, since=NOW_SECONDS + 7)] == [7, 8, 9]


async def test_entries_of_an_older_database_get_their_server(
    database_url: str | None, tmp_path: Path, server: RegistryServer
) -> None:
    with code_of_revision("0019"):
        old = await open_database(tmp_path, database_url)
        ann = await old.accounts.add_user("Ann", Role.USER)
        await old.registry.add_server(server)
        await old.registry.add_instance(
            Instance(server.id, "c-public", "gh", "gh", id="instance-0", user_id=ann.id)
        )
        about = [
            ("tool.call", f"@{ann.id}/gh/a/b"),
            ("instance.edit", "instance-0"),
            ("server.edit", server.id),
        ]
        others = [("tool.call", f"@{ann.id}/other/a"), ("tool.call", "github/find"), ("user.add", server.id)]
        await insert_old_entries(
            old,
            [entry(action=action, target=target, outcome="failed") for action, target in (*about, *others)],
        )
        await old.close()
    database = await open_database(tmp_path, database_url)
    entries = await page(database, server=server.id, succeeded=False)
    assert [(one.action, one.target) for one in entries] == about[::-1]
    assert [one.target for one in await page(database, server="github")] == ["github/find"]
    await database.close()


async def test_a_written_entry_comes_after_all_that_was_noted_before(database: Database) -> None:
    for number in range(700):
        database.audit.record(entry(number))
    await database.audit.write(entry(700, action="sign_in"))
    exported_entries = [one async for one in database.audit.export()]
    assert [one.at - NOW_SECONDS for one in exported_entries] == list(range(701))


async def test_simultaneous_writers_share_a_transaction(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions = 0
    write = database.executor.write

    async def count_write(work: Any) -> Any:
        nonlocal transactions
        transactions += 1
        return await write(work)

    monkeypatch.setattr(database.executor, "write", count_write)
    await asyncio.gather(*(database.audit.write(entry(number)) for number in range(100)))
    assert transactions < 5
    assert [one.at - NOW_SECONDS for one in await page(database)] == list(range(99, -1, -1))


async def test_pages_go_back_in_time(database: Database) -> None:
    for number in range(10):
        actor = "ann" if number % 2 else "bob"
        await database.audit.write(entry(number, actor=actor, action=f"a{number % 3}"))
    first = await page(database, limit=4)
    second = await page(database, limit=4, before=first[-1].id)
    assert [one.at - NOW_SECONDS for one in first + second] == [9, 8, 7, 6, 5, 4, 3, 2]
    assert [one.at - NOW_SECONDS for one in await page(database, actor="bob", action="a0")] == [6, 0]
    assert await page(database, actor="nobody") == []


@pytest.mark.parametrize(
    "odd", [{"before": 10**40}, {"before": -5}, {"limit": 10**40}, {"limit": -1}, {"actor": "a\0"}]
)
async def test_odd_questions_get_an_answer(database: Database, odd: dict[str, Any]) -> None:
    await database.audit.write(entry())
    expected = 1 if "limit" in odd or odd.get("before", 0) > 0 else 0
    assert len(await page(database, **odd)) == (0 if odd.get("limit") == -1 else expected)


async def test_an_entry_is_stored_with_any_content(database: Database) -> None:
    hostile = "\0\ud800" + "x" * 200_000
    odd = entry(
        action=hostile,
        actor=hostile,
        actor_name=hostile,
        target=hostile,
        outcome=hostile,
        address=hostile,
        details={"words": hostile[2:], "object": object()},
    )
    database.audit.record(odd)
    database.audit.record(entry(1, details={hostile[:2]: 1, "deep": {"x": "\0"}}))
    await database.audit.write(entry(2))
    entries = await page(database)
    assert [one.at - NOW_SECONDS for one in entries] == [2, 1, 0]
    assert entries[2].target.startswith("\ufffd?xxx")
    assert len(entries[2].target) < 5_000
    assert all("not_kept" in one.details for one in entries[1:])


async def test_closing_writes_noted_entries(database: Database, reopen: Callable[..., Any]) -> None:
    for number in range(1_500):
        database.audit.record(entry(number))
    await database.close()
    again: Database = await reopen()
    assert len([one async for one in again.audit.export()]) == 1_500


async def test_after_closing_nothing_is_taken_and_nothing_raised(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.close()
    with caplog.at_level(logging.WARNING):
        database.audit.record(entry())
    assert "closed" in caplog.text
    with pytest.raises(StoreClosed):
        await database.audit.write(entry())


async def test_the_oldest_entries_of_a_full_queue_are_dropped_and_counted(database: Database) -> None:
    log = SqlAuditLog(database.executor, max_pending=10)
    for number in range(25):
        log.record(entry(number))
    await log.write(entry(99))
    exported_entries = [one async for one in log.export()]
    await log.close()
    assert (exported_entries[0].action, exported_entries[0].details) == ("audit.lost", {"count": 15})
    assert [one.at - NOW_SECONDS for one in exported_entries[1:]] == [*range(15, 25), 99]


async def test_entries_wait_while_the_database_is_away(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., Awaitable[None]],
) -> None:
    log = SqlAuditLog(database.executor, retry_seconds=0.01)
    away = True
    write = database.executor.write

    async def sometimes(work: Any) -> Any:
        if away:
            raise DatabaseUnavailable("it is away")
        return await write(work)

    monkeypatch.setattr(database.executor, "write", sometimes)
    log.record(entry(1))
    with pytest.raises(DatabaseUnavailable):
        await log.write(entry(2))
    await wait_until(lambda: "the audit log cannot be written (1 queued): it is away" in caplog.text)
    away = False
    await log.write(entry(3))
    await log.close()
    assert [one.at - NOW_SECONDS for one in await page(database)] == [3, 1]


async def test_an_export_ends_though_entries_keep_coming(database: Database) -> None:
    for number in range(1_100):
        database.audit.record(entry(number))
    await database.audit.write(entry(1_100))
    count = 0
    async for _ in database.audit.export():
        count += 1
        if count % 100 == 0:
            await database.audit.write(entry(9_000))
    assert count == 1_101
