"""Limits for what chats store: exact counters, a notice before a limit, and a refusal at it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.store.repositories.test_chats import ME, begin_chat, build_model_event, chat, piece

from toolyard.agents.chat.errors import ChatQuotaExceeded
from toolyard.store import Database
from toolyard.store.repositories.chat_rows import ChatQuota
from toolyard.store.sql import migrate
from toolyard.types.chat import Fork, Kind, NewChatEvent, TurnState


async def count_stored_bytes(database: Database, owner: str = "local") -> int:
    """What is really there."""

    def work(connection: Any) -> int:
        sqlite = connection.dialect.name == "sqlite"
        size = "length(CAST({} AS BLOB))" if sqlite else "octet_length({})"
        body, kept_size = size.format("e.body"), size.format("e.kept")
        query = (
            f"SELECT COALESCE(SUM({body} + COALESCE({kept_size}, 0)), 0) FROM chat_events e"
            " JOIN chats c ON c.id = e.chat_id WHERE c.owner = :owner"
        )
        return int(connection.execute(text(query), {"owner": owner}).scalar_one())

    return await database.executor.read(work)


async def test_all_alternatives_count(database: Database) -> None:
    one = await begin_chat(database, text="a" * 1000)
    await database.chats.append(one.id, ME, [], next_state=TurnState.IDLE)
    for number in range(3):
        edited_message = [build_model_event("b" * 1000, Kind.USER)]
        fork = Fork(0, number + 1)
        await database.chats.claim(one.id, ME, TurnState.IDLE, edited_message, new_turn=True, fork=fork)
        await database.chats.append(one.id, ME, [], next_state=TurnState.IDLE)
    assert await database.chats.switch_branch(one.id, ME, 1)
    assert (await database.chats.usage("local")).bytes == await count_stored_bytes(database) > 4000
    database.chats.quota = ChatQuota(bytes=4000)
    # What is there can still be looked at.
    assert await database.chats.switch_branch(one.id, ME, 2)
    with pytest.raises(ChatQuotaExceeded):
        await database.chats.claim(
            one.id, ME, TurnState.IDLE, [build_model_event("c", Kind.USER)], new_turn=True, fork=Fork(0, 2)
        )


async def test_the_counter_equals_the_stored_bytes(database: Database) -> None:
    one = await begin_chat(database)
    other = await begin_chat(database, chat(2))
    await begin_chat(database, chat(3, "ann"))
    result = NewChatEvent(Kind.RESULT, {"text": "größer"}, "call-1", b"kept " * 10_000)
    await database.chats.append(one.id, ME, [piece("hel"), piece("lo, wörld")])
    await database.chats.append(
        one.id, ME, [piece("!"), build_model_event("hello, wörld!", part="step-1"), result]
    )
    await database.chats.append(other.id, ME, [piece("left behind")], next_state=TurnState.IDLE)
    usage = await database.chats.usage("local")
    assert usage.chats == 2
    assert usage.bytes == await count_stored_bytes(database) > 0
    assert usage.bytes_in_all == usage.bytes + await count_stored_bytes(database, "ann")
    await database.chats.delete("local", one.id)
    after = await database.chats.usage("local")
    assert (after.chats, after.bytes) == (1, await count_stored_bytes(database))
    assert 0 < after.bytes < usage.bytes


async def test_at_the_limit_no_turn_and_no_chat_begins_until_something_is_deleted(database: Database) -> None:
    database.chats.quota = quota = ChatQuota(bytes=10_000)
    one, other = await begin_chat(database), await begin_chat(database, chat(2))
    assert quota.notice(await database.chats.usage("local")) is None
    await database.chats.append(one.id, ME, [build_model_event("x" * 8_500)])
    assert "Your chats use" in str(quota.notice(await database.chats.usage("local")))
    # A turn that runs may finish.
    await database.chats.append(one.id, ME, [build_model_event("x" * 8_500)], next_state=TurnState.IDLE)
    await database.chats.append(other.id, ME, [], next_state=TurnState.IDLE)
    with pytest.raises(ChatQuotaExceeded, match=r"the limit is 10\.0 kB") as exc_info:
        await database.chats.claim(
            other.id, ME, TurnState.IDLE, [build_model_event("more", Kind.USER)], new_turn=True
        )
    assert "chat_bytes_limit" in str(exc_info.value.hint)
    with pytest.raises(ChatQuotaExceeded):
        await database.chats.create(chat(3))
    await begin_chat(database, chat(4, "ann"))
    await database.chats.delete("local", one.id)
    assert await database.chats.claim(
        other.id, ME, TurnState.IDLE, [build_model_event("m", Kind.USER)], new_turn=True
    )


async def test_one_limit_is_shared_by_all_users(database: Database) -> None:
    database.chats.quota = ChatQuota(bytes_in_all=5_000)
    one = await begin_chat(database)
    await database.chats.append(one.id, ME, [build_model_event("x" * 6_000)])
    with pytest.raises(ChatQuotaExceeded, match="storage for all chats"):
        await database.chats.create(chat(2, "ann"))


async def test_the_number_of_chats_is_limited(database: Database) -> None:
    database.chats.quota = quota = ChatQuota(chats=5)
    for number in range(4):
        await database.chats.create(chat(number))
    assert "You have 4 of 5 chats" in str(quota.notice(await database.chats.usage("local")))
    await database.chats.create(chat(4))
    with pytest.raises(ChatQuotaExceeded, match="5 chats"):
        await database.chats.create(chat(5))
    # Turns in the chats that are there still begin.
    assert await database.chats.claim(
        "chat-1", ME, TurnState.IDLE, [build_model_event("x", Kind.USER)], new_turn=True
    )


async def test_an_upgrade_counts_the_chats_that_are_there(database: Database) -> None:
    one = await begin_chat(database)
    await database.chats.append(one.id, ME, [build_model_event("größer" * 100)])
    expected = await count_stored_bytes(database)
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    script = Path(migrate.__file__).parent.parent / "migrations/versions/0009_chat_bytes.py"
    revision = runpy.run_path(str(script))

    def again(connection: Any) -> None:
        connection.execute(text("ALTER TABLE chats DROP COLUMN bytes"))
        with Operations.context(MigrationContext.configure(connection)):
            revision["upgrade"]()

    await database.executor.write(again)
    assert (await database.chats.usage("local")).bytes == expected
