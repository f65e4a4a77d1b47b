"""Several processes on one database, SQLite or PostgreSQL: each a real one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolyard.auth.storage import OAuthGrant, PendingSignIn
from toolyard.store import Database
from toolyard.types.account import Role
from toolyard.types.registry import Instance

pytestmark = pytest.mark.slow

Start = Callable[[str], Any]


async def test_ten_open_a_new_database_at_once(database_url: str | None, tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from toolyard.types.account import Role
from toolyard.store import Database
async def main():
    sys.stdin.readline()
    key = None if {database_url!r} is None else "a key for tests, long enough"
    database = await Database.open(Path({str(tmp_path / "data")!r}), url={database_url!r}, secret_key=key)
    await database.accounts.add_user(sys.argv[1], Role.USER)
    await database.accounts.put_sign_in(sys.argv[1], b"sealed", 1.0)
    await database.close()
asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, f"user {n}", stdin=pipe, stderr=pipe)
        for n in range(10)
    ]
    results = await asyncio.gather(*(one.communicate(b"go\n") for one in processes))
    assert [one.returncode for one in processes] == [0] * 10, results
    key = None if database_url is None else "a key for tests, long enough"
    database = await Database.open(tmp_path / "data", url=database_url, secret_key=key)
    assert len(await database.accounts.list_users()) == 10
    # All of them had the same key.
    for number in range(10):
        assert await database.accounts.take_sign_in(f"user {number}", 0.0) == b"sealed"
    await database.close()


async def test_a_pending_sign_in_is_taken_by_one_process(
    database: Database, process: Start, pending: PendingSignIn
) -> None:
    states = [f"state {number}" for number in range(20)]
    code = """
say("ready")
await told()
for number in range(20):
    say(number if await database.auth.take_pending(f"state {number}") else "-")
"""
    for state in states:
        await database.auth.put_pending(replace(pending, state=state))
    async with process(code) as first, process(code) as second:
        assert [await one.line() for one in (first, second)] == ["ready", "ready"]
        for one in (first, second):
            await one.tell()
        claims = [[await one.line() for _ in states] for one in (first, second)]
    assert [a != b and "-" in (a, b) for a, b in zip(*claims, strict=True)] == [True] * 20


async def test_a_grant_is_swapped_by_one_process(
    database: Database, process: Start, grant: OAuthGrant
) -> None:
    code = """
from dataclasses import replace
from toolyard.auth.storage import new_serial
held = {number: await database.auth.get_grant(f"k{number}") for number in range(40)}
say("ready")
await told()
for number, grant in held.items():
    new = replace(grant, serial=new_serial(), access_token=NAME)
    say(await database.auth.swap_grant(f"k{number}", grant.serial, new))
"""
    for number in range(40):
        await database.auth.put_grant(f"k{number}", grant)
    async with (
        process(code.replace("NAME", "'first'")) as first,
        process(code.replace("NAME", "'second'")) as second,
    ):
        assert [await one.line() for one in (first, second)] == ["ready", "ready"]
        for one in (first, second):
            await one.tell()
        swaps = [[await one.line() for _ in range(40)] for one in (first, second)]
    for number, (a, b) in enumerate(zip(*swaps, strict=True)):
        assert {a, b} == {"True", "False"}
        kept_grant = await database.auth.get_grant(f"k{number}")
        assert kept_grant is not None
        assert kept_grant.access_token == ("first" if a == "True" else "second")


HOLD = """
async with database.auth.refresh_lock("k"):
    say("held")
    await told()
say("let go")
"""


async def test_a_process_waits_until_another_has_refreshed(database: Database, process: Start) -> None:
    async with process(HOLD) as other:
        assert await other.line() == "held"

        async def refresh_own() -> None:
            async with database.auth.refresh_lock("k"):
                pass

        task = asyncio.create_task(refresh_own())
        for number in range(20):
            async with asyncio.timeout(30), database.auth.refresh_lock(f"another key {number}"):
                pass
        assert not task.done()
        await other.tell()
        await asyncio.wait_for(task, 30)
        assert await other.line() == "let go"


async def test_the_lock_of_a_killed_process_is_free_at_once(database: Database, process: Start) -> None:
    async with process(HOLD) as other:
        assert await other.line() == "held"
        await other.kill()
        async with asyncio.timeout(30), database.auth.refresh_lock("k"):
            pass


async def test_a_counter_loses_nothing_between_processes(
    database: Database, process: Start, grant: OAuthGrant
) -> None:
    """What a refresh does: hold, read, write, in three processes at once."""
    code = """
from dataclasses import replace
from toolyard.auth.storage import new_serial
for _ in range(20):
    async with database.auth.refresh_lock("k"):
        grant = await database.auth.get_grant("k")
        new = replace(grant, serial=new_serial(), issued_at=grant.issued_at + 1)
        assert await database.auth.swap_grant("k", grant.serial, new)
say("done")
"""
    await database.auth.put_grant("k", grant)
    async with process(code) as a, process(code) as b, process(code) as c:
        assert [await one.line() for one in (a, b, c)] == ["done"] * 3
    kept_grant = await database.auth.get_grant("k")
    assert kept_grant is not None
    assert kept_grant.issued_at == grant.issued_at + 60


async def test_writers_in_several_processes_do_not_fail(
    database: Database, process: Start, instance: Instance
) -> None:
    """Some look first and write then, for which SQLite would refuse whoever was overtaken in between."""
    code = """
from dataclasses import replace
from toolyard.types.audit import AuditEntry
from toolyard.types.account import Role
mine, _ = await database.registry.get_instance(OWNER, "instance-1")
async def work(number):
    await database.accounts.add_user(f"{NAME} {number}", Role.USER)
    assert await database.registry.save_instance(replace(mine, name=f"{NAME} {number}"))
    await database.audit.write(AuditEntry(1.0, "x", NAME))
say("ready")
await told()
await asyncio.gather(*map(work, range(60)))
say("done")
""".replace("OWNER", repr(instance.user_id))
    async with (
        process(code.replace("NAME", "'a'")) as first,
        process(code.replace("NAME", "'b'")) as second,
    ):
        assert [await one.line() for one in (first, second)] == ["ready", "ready"]
        for one in (first, second):
            await one.tell()
        assert [await one.line() for one in (first, second)] == ["done", "done"]
    assert len(await database.accounts.list_users()) == 121
    assert len([one async for one in database.audit.export()]) == 120


async def test_a_process_killed_while_it_writes_breaks_nothing(database: Database, process: Start) -> None:
    code = """
from toolyard.types.account import Role
number = 0
while True:
    await database.accounts.add_user(f"user {number}", Role.USER)
    say(number)
    number += 1
"""
    async with process(code) as other:
        for _ in range(20):
            last = await other.line()
        await other.kill()
    users = await database.accounts.list_users()
    # All that was answered is there.
    assert len(users) > int(last)
    async with asyncio.timeout(30):
        await database.accounts.add_user("mine", Role.USER)
