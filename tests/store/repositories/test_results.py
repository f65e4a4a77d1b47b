"""Long results in the database; what holds wherever they are kept, tests/results/test_result_store.py has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolyard.results.result_store import Retention, StoredResult, make_handle
from toolyard.store import Database
from toolyard.store.errors import DatabaseUnavailable
from toolyard.types.account import Principal, User
from toolyard.types.server import Trust

STORED_RESULT = StoredResult("a long text", Trust.UNTRUSTED, "srv")


async def test_a_users_results_go_with_the_user(
    database: Database, ann: User, bob: User, rows: Callable[[str], Awaitable[list[Any]]]
) -> None:
    for user in (ann, bob):
        await database.results.for_principal(Principal(user.id)).save(
            make_handle(STORED_RESULT), STORED_RESULT
        )
    await database.accounts.delete_user(ann.id)
    assert [row["principal"] for row in await rows("results")] == [bob.id]


async def test_other_replicas_read_them(
    database: Database, reopen: Callable[..., Awaitable[Database]]
) -> None:
    await database.results.for_principal(Principal("ann")).save(make_handle(STORED_RESULT), STORED_RESULT)
    reopened_results = (await reopen()).results.for_principal(Principal("ann"))
    assert await reopened_results.has_any()
    assert await reopened_results.read(make_handle(STORED_RESULT)) == STORED_RESULT


async def test_while_the_database_is_away_memory_serves(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(work: object) -> Any:
        raise DatabaseUnavailable("it is away")

    ann, bob = (database.results.for_principal(Principal(name)) for name in ("ann", "bob"))
    with monkeypatch.context() as patch:
        patch.setattr(database.executor, "write", away)
        patch.setattr(database.executor, "read", away)
        await ann.save("h", STORED_RESULT)
        assert await ann.read("h") == STORED_RESULT
        assert await ann.has_any()
        assert await bob.read("h") is None
        assert not await bob.has_any()
    assert await ann.read("h") == STORED_RESULT
    assert "it is away" in caplog.text


async def test_results_with_unstorable_keys_are_kept_in_memory(database: Database) -> None:
    odd = database.results.for_principal(Principal("no\0name"))
    assert not await odd.has_any()
    await odd.save("h", STORED_RESULT)
    assert await odd.read("h") == STORED_RESULT


async def test_the_bounds_can_be_others(
    database: Database, rows: Callable[[str], Awaitable[list[Any]]]
) -> None:
    small = database.results.with_retention(Retention(max_age_seconds=60, max_total_bytes=1)).for_principal(
        Principal("ann")
    )
    for text in ("one", "two"):
        stored_result = StoredResult(text, Trust.TRUSTED)
        await small.save(make_handle(stored_result), stored_result)
    assert [row["handle"] for row in await rows("results")] == [
        make_handle(StoredResult("two", Trust.TRUSTED))
    ]
