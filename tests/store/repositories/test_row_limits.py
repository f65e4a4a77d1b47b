"""Rows that one person can create without end are limited: the oldest go, or a new one is refused."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.store.repositories.test_approvals import approval, grant

from toolyard.auth.storage import PendingSignIn
from toolyard.errors import LimitReached
from toolyard.store import Database
from toolyard.store.locks import create_refresh_locks
from toolyard.store.repositories.accounts import SqlAccountStorage
from toolyard.store.repositories.approvals import SqlApprovalStore
from toolyard.store.repositories.sign_ins import SqlAuthStorage
from toolyard.types.account import BrowserSession, User
from toolyard.types.registry import Instance

Rows = Callable[[str], Awaitable[list[dict[str, Any]]]]


def accounts(database: Database, **limits: int) -> SqlAccountStorage:
    return SqlAccountStorage(database.executor, database.cipher, time.time, database.signals, **limits)


async def test_the_least_recently_used_session_of_a_user_ends_beyond_the_limit(
    database: Database, ann: User, bob: User, rows: Rows
) -> None:
    people, now = accounts(database, max_sessions_per_user=2), time.time()

    async def sign_in(user: User, number: int) -> None:
        browser_session = BrowserSession(f"s{number}", user.id, now, now + 60, last_seen=now + number)
        await people.add_session(f"d{number}", browser_session)

    await sign_in(bob, 0)
    await sign_in(ann, 1)
    await sign_in(ann, 2)
    await people.touch_session("d1", now + 10, "")
    await sign_in(ann, 11)
    assert sorted(row["id"] for row in await rows("sessions")) == ["s0", "s1", "s11"]


async def test_pending_sign_ins_are_limited_for_one_server_and_at_the_identity_provider(
    database: Database, pending: PendingSignIn, rows: Rows, tmp_path: Path
) -> None:
    locks = create_refresh_locks(database.executor.engines, tmp_path)
    auth = SqlAuthStorage(database.executor, database.cipher, locks, max_pending_per_key=2)
    await auth.put_pending(replace(pending, state="other", key="instance:2"))
    for number in range(4):
        await auth.put_pending(replace(pending, state=f"state-{number}", began_at=pending.began_at + number))
    pending_states = [
        await auth.take_pending(state) for state in ("other", *(f"state-{n}" for n in range(4)))
    ]
    assert [each is not None for each in pending_states] == [True, False, False, True, True]
    people = accounts(database, max_pending_sign_ins=2)
    for number in range(4):
        await people.put_sign_in(f"d{number}", b"body", 1_000.0 + number)
    assert [row["digest"] for row in await rows("sign_ins")] == ["d2", "d3"]


async def test_answered_approvals_and_standing_ones_are_limited_and_open_ones_stay(
    database: Database, rows: Rows
) -> None:
    store = SqlApprovalStore(database.executor, max_answered_per_owner=2, max_grants_per_owner=3)
    for number in range(6):
        await store.add(approval(number))
    for number in range(5):
        access_grant = grant(number, created_at=200.0 + number)
        assert await store.answer(
            "local", f"approval-{number}", yes=True, at=200.0 + number, grant=access_grant
        )
    assert [row["id"] for row in await rows("approvals")] == ["approval-3", "approval-4", "approval-5"]
    assert [row["id"] for row in await rows("grants")] == ["grant-2", "grant-3", "grant-4"]


async def test_a_user_has_so_many_instances_and_no_more(
    database: Database, instance: Instance, bob: User
) -> None:
    second = replace(instance, id="instance-2", slug="two")
    with pytest.raises(LimitReached, match="the limit of 1 instance is reached") as exc_info:
        await database.registry.add_instance(second, max_per_user=1)
    assert "instance_limit" in str(exc_info.value.hint)
    await database.registry.add_instance(replace(second, user_id=bob.id), max_per_user=1)
    await database.registry.add_instance(replace(second, id="instance-3"), max_per_user=0)
