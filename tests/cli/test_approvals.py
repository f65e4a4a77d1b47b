"""``toolyard approvals``: list and revoke approvals in the database."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from toolyard.store import Database
from toolyard.types.approval import Approval, Grant

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


def test_standing_approvals_are_listed_and_revoked(cli: Cli) -> None:
    async def fill() -> None:
        database = await Database.open(cli.data, url=None, secret_key=None)
        now = time.time()
        for number in (1, 2):
            approval = Approval(f"a{number}", "local", "notes/add", "notes_add", "h", {}, "it writes", now)
            await database.approvals.add(approval)
        grant = Grant("g1", "local", "notes/add", "notes_add", "h", "{}", now, now + 86_400)
        assert await database.approvals.answer("local", "a1", yes=True, at=now, grant=grant)
        await database.close()

    asyncio.run(fill())
    result = cli("approvals", "list")
    assert result.lines[0].split("\t")[:2] == ["notes_add", "any arguments, everywhere"]
    assert "calls that need approval: 1" in result.err
    document = cli("approvals", "list", "--json").json
    assert [each["id"] for each in document["pending"]] == ["a2"]
    assert [each["id"] for each in document["standing"]] == ["g1"]
    assert cli("approvals", "revoke", "g1").out == "g1 was revoked\n"
    again = cli("approvals", "revoke", "g1")
    assert again.code != 0
    assert "unknown standing approval 'g1'" in again.err
    assert "no standing approvals" in cli("approvals", "list").err
    assert "unknown user 'ann'" in cli("approvals", "list", "--user", "ann").err
