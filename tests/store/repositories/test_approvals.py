"""Calls that wait for a yes, and what was granted, on both databases."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from toolyard.agents.chat.errors import NoSuchChat
from toolyard.store import Database
from toolyard.types.account import User
from toolyard.types.approval import Approval, Grant
from toolyard.types.chat import Chat

Rows = Callable[[str], Awaitable[list[dict[str, Any]]]]


def approval(number: int = 1, **values: Any) -> Approval:
    approval = Approval(
        id=f"approval-{number}",
        owner="local",
        tool="files/delete",
        name="files_delete",
        definition_hash="hash-1",
        arguments={"path": "docs/½.md", "deep": [1, 2.5, None, True]},
        reason="it writes",
        asked_at=100.0 + number,
    )
    return replace(approval, **values)


def grant(number: int = 1, **values: Any) -> Grant:
    grant = Grant(
        id=f"grant-{number}",
        owner="local",
        tool="files/delete",
        name="files_delete",
        definition_hash="hash-1",
        predicate_json='{"path":{"glob":"docs/*"}}',
        created_at=100.0 + number,
        expires_at=1_000.0,
    )
    return replace(grant, **values)


@pytest.fixture
async def chat(database: Database) -> str:
    await database.chats.create(Chat("chat-1", "local", "", 1.0, 1.0))
    return "chat-1"


async def store_grants(database: Database, *grants: Grant) -> None:
    """Each through an approval of its own."""
    for one in grants:
        other_approval = approval(owner=one.owner, id=f"for-{one.id}")
        await database.approvals.add(other_approval)
        assert await database.approvals.answer(
            one.owner, other_approval.id, yes=True, at=one.created_at, grant=one
        )


async def use(
    database: Database, *, now: float = 500.0, chat_id: str | None = None, **values: Any
) -> Grant | None:
    how = {
        "owner": "local",
        "tool": "files/delete",
        "definition_hash": "hash-1",
        "fits": lambda _: True,
        **values,
    }
    return await database.approvals.use_grant(chat_id=chat_id, now=now, **how)


# Asking.


async def test_an_approval_comes_back_as_it_was_asked(database: Database, chat: str) -> None:
    pending_approvals = [approval(1), approval(2, chat_id=chat, call_id="call-1")]
    for one in pending_approvals:
        await database.approvals.add(one)
        assert await database.approvals.find("local", one.id) == one
    assert await database.approvals.find("ann", "approval-1") is None
    assert await database.approvals.find("local", "no\0such\ud800") is None
    assert await database.approvals.list_pending("local") == pending_approvals
    assert await database.approvals.list_pending("ann") == []


async def test_all_arguments_and_texts_can_be_stored_in_an_approval(database: Database) -> None:
    hostile = approval(
        tool="files/a\0b",
        name="n\ud800",
        reason="r\0",
        call_id="c\ud800",
        arguments={"half": "\ud800", "nan": math.nan, "nul": "\0", "huge": 2**70},
    )
    await database.approvals.add(hostile)
    stored_approval = await database.approvals.find("local", hostile.id)
    assert stored_approval is not None
    # A number that is not exactly the same one is no longer a number.
    assert stored_approval.arguments == {"half": "\ufffd", "nan": None, "nul": "\0", "huge": str(2**70)}
    one = grant(tool="files/a\0b")
    await store_grants(database, one)
    assert await use(database, tool="files/a\0b") is not None


async def test_other_tasks_run_while_a_call_is_compared_with_many_standing_approvals(
    database: Database,
) -> None:
    """Each may have arguments of 256 KB."""
    await store_grants(database, *(grant(number) for number in range(20)))
    turns, turns_by_check = 0, set[int]()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def never_fits(_: object) -> bool:
        turns_by_check.add(turns)
        return False

    counting = asyncio.create_task(count_turns())
    assert await use(database, fits=never_fits) is None
    counting.cancel()
    assert len(turns_by_check) == 20


async def test_an_approval_is_answered_once_and_by_its_owner(database: Database) -> None:
    await database.approvals.add(approval())
    answer = database.approvals.answer
    assert not await answer("ann", "approval-1", yes=True, at=200.0, grant=None)
    answers = await asyncio.gather(
        *(answer("local", "approval-1", yes=n % 2 == 0, at=200.0 + n, grant=grant(n)) for n in range(10))
    )
    assert sum(answers) == 1
    won = answers.index(True)
    stored_approval = await database.approvals.find("local", "approval-1")
    assert stored_approval == approval(answered_at=200.0 + won, yes=won % 2 == 0)
    assert [one.id for one in await database.approvals.list_grants("local", 300.0)] == [f"grant-{won}"]
    assert await database.approvals.list_pending("local") == []
    assert not await answer("local", "no\0such", yes=True, at=1.0, grant=None)


async def test_the_approvals_of_a_chat_go_with_it(database: Database, chat: str, rows: Rows) -> None:
    await database.approvals.add(approval(1, chat_id=chat))
    await database.approvals.add(approval(2))
    await store_grants(database, grant(1, chat_id=chat), grant(2))
    await database.chats.delete("local", chat)
    assert [one.id for one in await database.approvals.list_pending("local")] == ["approval-2"]
    assert [row["id"] for row in await rows("grants")] == ["grant-2"]
    with pytest.raises(NoSuchChat):
        await database.approvals.add(approval(3, chat_id=chat))
    with pytest.raises(NoSuchChat):
        await database.approvals.answer("local", "approval-2", yes=True, at=2.0, grant=grant(3, chat_id=chat))
    assert len(await database.approvals.list_pending("local")) == 1


async def test_deleting_a_user_deletes_their_records(
    database: Database, ann: User, bob: User, rows: Rows
) -> None:
    for number, user in enumerate((ann, bob), 1):
        await database.approvals.add(approval(number, owner=user.id))
        await store_grants(database, grant(number, owner=user.id))
    await database.accounts.delete_user(ann.id)
    assert {row["owner"] for row in await rows("approvals")} == {bob.id}
    assert {row["owner"] for row in await rows("grants")} == {bob.id}


async def test_approvals_without_a_chat_expire(database: Database, chat: str, rows: Rows) -> None:
    day = 86_400.0
    await database.approvals.add(approval(1, asked_at=0.0))
    await database.approvals.add(approval(2, asked_at=0.0, chat_id=chat))
    await database.approvals.add(approval(3, asked_at=29 * day))
    await database.approvals.add(approval(4, asked_at=31 * day))
    assert [row["id"] for row in await rows("approvals")] == ["approval-2", "approval-3", "approval-4"]


# Grants.


async def test_grants_count_until_they_expire_or_are_revoked(database: Database, rows: Rows) -> None:
    await store_grants(database, grant(1), grant(2, expires_at=2_000.0, uses=3), grant(3, owner="ann"))
    assert await database.approvals.list_grants("local", 999.0) == [
        grant(2, expires_at=2_000.0, uses=3),
        grant(1),
    ]
    assert await database.approvals.list_grants("local", 1_000.0) == [grant(2, expires_at=2_000.0, uses=3)]
    assert not await database.approvals.revoke("local", "grant-3")
    assert not await database.approvals.revoke("local", "no\0such")
    assert await database.approvals.revoke("local", "grant-2")
    assert not await database.approvals.revoke("local", "grant-2")
    assert await database.approvals.list_grants("local", 1_500.0) == []
    # Another one makes room.
    await store_grants(database, grant(4, created_at=3_000.0, expires_at=4_000.0))
    assert [row["id"] for row in await rows("grants")] == ["grant-3", "grant-4"]


async def test_a_grant_covers_its_owner_tool_definition_time_and_chat(database: Database, chat: str) -> None:
    await store_grants(database, grant(1, chat_id=chat))
    assert await use(database, chat_id=chat) == grant(1, chat_id=chat)
    for other in (
        {"owner": "ann"},
        {"tool": "files/read"},
        {"definition_hash": "hash-2"},
        {"now": 1_000.0},
        {"chat_id": None},
        {"chat_id": "chat-2"},
        {"fits": lambda _: False},
        {"tool": "files/delete\0"},
        {"definition_hash": "\0"},
    ):
        assert await use(database, **{"chat_id": chat, **other}) is None, other
    await store_grants(database, grant(2))
    assert await use(database, chat_id="chat-2") == grant(2)


async def test_the_arguments_must_fit_the_predicate_as_it_was_stored(database: Database) -> None:
    exact = {"": {"equal": {"a": 1, "b": [1.5, "½", None], "c": {"d": True}}}}
    stored_grant = grant(1, predicate_json=orjson.dumps(exact).decode())
    await store_grants(database, stored_grant, grant(2, predicate_json="{}"))
    grant_ids: list[Any] = []

    def fits(predicate: Any) -> bool:
        grant_ids.append(predicate)
        return predicate == exact

    assert await use(database, fits=fits) == stored_grant
    assert sorted(grant_ids, key=len) == [{}, exact]


async def test_the_arguments_of_a_standing_approval_are_decoded_only_when_they_are_needed(
    database: Database,
) -> None:
    large = orjson.dumps({"": {"equal": {"a": [[] for _ in range(20_000)]}}}).decode()
    await store_grants(database, grant(1, predicate_json=large))
    before = len(gc.get_objects())
    (found_grant,) = await database.approvals.list_grants("local", 200.0)
    assert len(gc.get_objects()) < before + 10_000
    assert len(found_grant.predicate[""]["equal"]["a"]) == 20_000


async def test_nothing_is_used_twice(database: Database) -> None:
    await store_grants(database, grant(1, uses=3), grant(2, uses=2, expires_at=900.0))
    results = await asyncio.gather(*(use(database) for _ in range(12)))
    used_grants = [one for one in results if one is not None]
    assert len(used_grants) == 5
    assert sorted((one.id, one.uses) for one in used_grants) == [
        ("grant-1", 0),
        ("grant-1", 1),
        ("grant-1", 2),
        ("grant-2", 0),
        ("grant-2", 1),
    ]
    assert await database.approvals.list_grants("local", 500.0) == []


async def test_grants_for_any_number_of_calls_are_used_first(database: Database) -> None:
    await store_grants(database, grant(1, uses=1), grant(2), grant(3, uses=1, expires_at=600.0))
    assert [one and one.id for one in [await use(database) for _ in range(3)]] == ["grant-2"] * 3
    await database.approvals.revoke("local", "grant-2")
    # What would run out first goes first.
    assert [one and one.id for one in [await use(database) for _ in range(3)]] == ["grant-3", "grant-1", None]


async def test_two_processes_use_a_grant_once(database: Database, process: Callable[[str], Any]) -> None:
    await store_grants(database, grant(1, uses=20))
    code = """
say("ready")
await told()
used = await asyncio.gather(*(
    database.approvals.use_grant("local", "files/delete", "hash-1", lambda _: True, None, 500.0)
    for _ in range(15)
))
say(sum(one is not None for one in used))
await told()
"""
    async with process(code) as one, process(code) as two:
        assert [await one.line(), await two.line()] == ["ready", "ready"]
        await one.tell()
        await two.tell()
        assert int(await one.line()) + int(await two.line()) == 20


async def test_a_standing_approval_given_while_the_clock_was_ahead_does_not_count(database: Database) -> None:
    ahead = 366 * 86_400.0
    await store_grants(database, grant(created_at=ahead, expires_at=ahead + 3600.0))
    assert len(await database.approvals.list_grants("local", ahead + 1)) == 1
    assert await database.approvals.list_grants("local", 200.0) == []
    assert (
        await database.approvals.use_grant("local", "files/delete", "hash-1", lambda _: True, None, 200.0)
        is None
    )


async def test_the_last_approved_call_of_a_tool_is_found(database: Database, chat: str) -> None:
    store = database.approvals
    answers = [
        (1, True, {}),
        (2, False, {}),
        (3, True, {"tool": "files/read"}),
        (4, True, {"owner": "other"}),
    ]
    for number, yes, values in answers:
        pending_approval = approval(number, arguments={"n": number}, **values)
        await store.add(pending_approval)
        assert await store.answer(
            pending_approval.owner, pending_approval.id, yes=yes, at=200.0 + number, grant=None
        )
    await store.add(approval(5, chat_id=chat))
    arguments = await store.find_last_approved("local", "files/delete")
    assert arguments is not None
    assert arguments.arguments == {"n": 1}
    assert await store.find_last_approved("local", "files/write") is None
