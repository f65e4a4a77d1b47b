"""Branches of a chat, on both databases: parents of turns, the chosen branch, chats of earlier versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from tests.store.repositories.test_chats import ME, OTHER, begin_chat, build_model_event, chat, numbers
from tests.store.sql.test_migrations import code_of_revision, open_database

from toolyard.agents.chat.errors import ChatChanged
from toolyard.store import Database
from toolyard.types.chat import ChatEvent, Fork, Kind, TurnState


async def turn(database: Database, fork: Fork | None = None, length: int = 3) -> int:
    """The number of a turn of so many events, which is over."""
    first = [build_model_event("q", Kind.USER)]
    [start] = await database.chats.claim("chat-1", ME, TurnState.IDLE, first, new_turn=True, fork=fork) or ()
    rest = [build_model_event(str(number)) for number in range(length - 1)]
    await database.chats.append("chat-1", ME, rest, next_state=TurnState.IDLE)
    return start.seq


async def test_the_latest_events_are_those_of_one_branch(database: Database) -> None:
    await database.chats.create(chat())
    first, second, third = [await turn(database) for _ in range(3)]
    other = await turn(database, Fork(first, third))
    last = await turn(database)
    assert await database.chats.switch_branch("chat-1", ME, third)
    assert ((await database.chats.get("local", "chat-1")) or chat()).turn == third
    tree = await database.chats.get_turn_tree("chat-1")
    assert tree.parents == {first: 0, second: first, third: second, other: first, last: other}
    latest = database.chats.list_latest_events
    assert numbers(await latest("chat-1", third)) == [*range(1, 10)]
    assert numbers(await latest("chat-1", last)) == [1, 2, 3, *range(10, 16)]
    assert numbers(await latest("chat-1", last, limit=4)) == [*range(10, 16)]
    assert numbers(await latest("chat-1", last, before=other)) == [1, 2, 3]
    assert numbers(await latest("chat-1", last, before=14)) == [1, 2, 3, *range(10, 14)]
    assert await latest("chat-1", 2) == await latest("chat-1", 0) == []
    # The event of the switch is the last one, and belongs to no place in a branch.
    [switch] = await database.chats.list_events("chat-1", after=15)
    assert (switch.kind, switch.turn, switch.seq, switch.parent) == (Kind.SWITCH, third, 16, None)
    ends = [await database.chats.find_branch_end("chat-1", before) for before in (1, 2, 5, 11, 16, 17, 99)]
    assert ends == [0, first, second, other, last, third, third]


async def test_a_turn_after_a_switch_follows_the_chosen_branch(database: Database) -> None:
    await database.chats.create(chat())
    first = await turn(database)
    other = await turn(database, Fork(0, first))
    assert await database.chats.switch_branch("chat-1", ME, first)
    last = await turn(database)
    assert (await database.chats.get_turn_tree("chat-1")).branch(last) == [first, last]
    # Readers in this process and in others get the same.
    [read] = await database.chats.list_events("chat-1", after=last - 1, limit=1)
    assert (read.parent, other in (await database.chats.get_turn_tree("chat-1")).parents) == (first, True)


async def test_a_fork_of_a_branch_that_was_left_is_refused(database: Database) -> None:
    await database.chats.create(chat())
    first = await turn(database)
    await turn(database, Fork(0, first))
    with pytest.raises(ChatChanged):
        await turn(database, Fork(0, first))
    await begin_chat(database, chat(2))
    await turn(database)


async def test_a_chat_with_a_running_turn_is_not_switched(database: Database) -> None:
    await begin_chat(database)
    assert not await database.chats.switch_branch("chat-1", OTHER, 1)
    await database.chats.append("chat-1", ME, [], next_state=TurnState.WAITING)
    assert not await database.chats.switch_branch("chat-1", ME, 1)
    assert not await database.chats.switch_branch("no such chat", ME, 1)
    assert numbers(await database.chats.list_events("chat-1")) == [1]


async def test_waiting_readers_learn_of_a_switch(database: Database) -> None:
    await database.chats.create(chat())
    await turn(database)
    events_task = asyncio.ensure_future(database.chats.wait_for_events("chat-1", 3, 30))
    await asyncio.sleep(0)
    assert await database.chats.switch_branch("chat-1", ME, 1)
    events: list[ChatEvent] = [*await events_task]
    assert [(each.kind, each.turn) for each in events] == [(Kind.SWITCH, 1)]


async def test_retries_of_earlier_versions_become_alternatives(
    database_url: str | None, tmp_path: Path
) -> None:
    starts = {1: None, 4: None, 7: 4, 9: 7, 12: None, 15: 12}
    with code_of_revision("0018"):
        database = await open_database(tmp_path, database_url)
        insert = text(
            "INSERT INTO chats (id, owner, title, title_key, created_at, updated_at, state, turn, last,"
            " stop_asked) VALUES (:id, 'local', '', '', 1, 1, 'idle', 15, 20, :no)"
        )
        event = text(
            "INSERT INTO chat_events (chat_id, seq, turn, kind, at, part, body)"
            " VALUES (:id, :seq, :turn, :kind, 1, '', :body)"
        )

        def fill(connection: Connection) -> None:
            for id_ in ("old", "plain"):
                connection.execute(insert, {"id": id_, "no": False})
                for seq, again in starts.items():
                    number = again if id_ == "old" and again else "null"
                    body = f'{{"text":"say \\"again\\":1","arguments":{{"again":5}},"again":{number}}}'
                    values = {"id": id_, "seq": seq, "turn": seq, "kind": "user", "body": body}
                    connection.execute(event, values)
                    event_values = {
                        **values,
                        "seq": seq + 1,
                        "kind": "said",
                        "body": '{"text":"\\"again\\":2"}',
                    }
                    connection.execute(event, event_values)

        await database.executor.write(fill)
        await database.close()
    database = await open_database(tmp_path, database_url)
    tree = await database.chats.get_turn_tree("old")
    assert tree.branch(15) == [1, 9, 15]
    assert [tree.alternatives(each) for each in (1, 9, 15)] == [[1], [4, 7, 9], [12, 15]]
    plain = await database.chats.get_turn_tree("plain")
    assert plain.branch(15) == [*starts]
    assert numbers(await database.chats.list_latest_events("plain", 15, limit=4)) == [12, 13, 15, 16]
    await database.close()


async def test_deleted_turns_leave_no_events_and_no_bytes(database: Database) -> None:
    await database.chats.create(chat())
    first = await turn(database)
    before = await database.chats.usage("local")
    other = await turn(database, Fork(0, first))
    last = await turn(database)
    switch, deleted_turns = database.chats.switch_branch, [other, last]
    with pytest.raises(ChatChanged):
        await switch("chat-1", ME, first, deleted_turns=deleted_turns, fork=Fork(0, first))
    assert await switch("chat-1", ME, first, deleted_turns=deleted_turns, fork=Fork(0, last))
    assert (await database.chats.get_turn_tree("chat-1")).parents == {first: 0}
    assert [each.kind for each in await database.chats.list_events("chat-1", after=3)] == [Kind.SWITCH]
    assert (await database.chats.usage("local")).bytes - before.bytes < 20
    # Numbers of deleted events are not used again.
    assert await turn(database) > last
