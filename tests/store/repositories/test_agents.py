"""Stored agents, in both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from toolyard.errors import LimitReached, Taken
from toolyard.store import Database
from toolyard.store.change_feed.signals import AGENTS_CHANNEL
from toolyard.types.account import User
from toolyard.types.agent import Agent, StoredAgent
from toolyard.types.chat import Chat

FULL = Agent(
    "reviewer",
    "Reviewer ✓",
    "Reads <b>code</b>",
    "```\nnever closed",
    "openai:x",
    0.5,
    ("*", "!web_*"),
    ("a",),
    "meta",
    7,
    starters=("What's new?",),
)


def build_stored_agent(id: str, owner: str | None, agent: Agent = FULL) -> StoredAgent:
    return StoredAgent(id, owner, agent, 1, 5.0)


async def test_an_agent_comes_back_as_it_was_added(database: Database, ann: User) -> None:
    plain = build_stored_agent("ag_2", ann.id, Agent("a", "A"))
    await database.agents.add(build_stored_agent("ag_1", ann.id))
    await database.agents.add(plain)
    assert await database.agents.list_agents(ann.id) == [plain, build_stored_agent("ag_1", ann.id)]
    assert await database.agents.get(ann.id, "ag_1") == build_stored_agent("ag_1", ann.id)
    assert await database.agents.get(ann.id, "ag_3") is None


async def test_only_shared_agents_reach_another_person(database: Database, ann: User, bob: User) -> None:
    shared_agent = build_stored_agent("ag_2", None, Agent("shared", "Shared"))
    await database.agents.add(build_stored_agent("ag_1", ann.id))
    await database.agents.add(shared_agent)
    assert await database.agents.list_agents(bob.id) == [shared_agent]
    assert await database.agents.get(bob.id, "ag_1") is None
    assert await database.agents.find(bob.id, "reviewer") is None
    assert await database.agents.find(bob.id, "shared") == shared_agent


async def test_ones_own_agent_is_found_before_a_shared_one(database: Database, ann: User, bob: User) -> None:
    await database.agents.add(build_stored_agent("ag_1", None))
    await database.agents.add(build_stored_agent("ag_2", ann.id))
    agents = [await database.agents.find(each.id, "reviewer") for each in (ann, bob)]
    assert [each and each.id for each in agents] == ["ag_2", "ag_1"]


@pytest.mark.parametrize("owner", ["someone", None])
async def test_a_name_is_taken_once_per_owner(database: Database, owner: str | None) -> None:
    await database.agents.add(build_stored_agent("ag_1", owner))
    with pytest.raises(Taken):
        await database.agents.add(build_stored_agent("ag_2", owner))
    other = build_stored_agent("ag_2", owner, Agent("other", "Other"))
    await database.agents.add(other)
    with pytest.raises(Taken):
        await database.agents.save(other, replace(other, agent=FULL), moves_chats=True)
    assert await database.agents.get("someone", "ag_2") == other


async def test_the_second_of_two_editors_saves_nothing(database: Database, ann: User) -> None:
    old = build_stored_agent("ag_1", ann.id)
    first, second = (
        replace(old, version=2, agent=replace(FULL, description=text)) for text in ("first", "second")
    )
    await database.agents.add(old)
    assert await database.agents.save(old, first, moves_chats=True)
    assert not await database.agents.save(old, second, moves_chats=True)
    assert await database.agents.get(ann.id, "ag_1") == first


async def test_an_owner_has_as_many_agents_as_allowed(database: Database, ann: User) -> None:
    own = build_stored_agent("ag_1", ann.id)
    await database.agents.add(own, max_per_owner=1)
    with pytest.raises(LimitReached, match="agent_limit"):
        await database.agents.add(build_stored_agent("ag_2", ann.id, Agent("b", "B")), max_per_owner=1)
    await database.agents.add(build_stored_agent("ag_3", None, Agent("c", "C")), max_per_owner=1)
    with pytest.raises(LimitReached):
        await database.agents.save(own, replace(own, owner=None), moves_chats=False, max_per_owner=1)


async def test_chats_follow_a_renamed_agent(database: Database, ann: User, bob: User) -> None:
    shared_agent = build_stored_agent("ag_1", None)
    await database.agents.add(shared_agent)
    await database.agents.add(build_stored_agent("ag_2", bob.id))
    for owner in (ann.id, bob.id):
        await database.chats.create(Chat(f"chat-{owner}", owner, "", 1.0, 1.0, agent="reviewer"))
    renamed_agent = replace(shared_agent, version=2, agent=replace(FULL, id="critic", name="Critic"))
    assert await database.agents.save(shared_agent, renamed_agent, moves_chats=True)
    chats = [await database.chats.get(each.id, f"chat-{each.id}") for each in (ann, bob)]
    # Bob's chat uses his own agent of the same name.
    assert [each and each.agent for each in chats] == ["critic", "reviewer"]


async def test_a_deleted_user_leaves_no_private_agent(database: Database, ann: User) -> None:
    await database.agents.add(build_stored_agent("ag_1", ann.id))
    await database.agents.add(build_stored_agent("ag_2", None))
    await database.accounts.delete_user(ann.id)
    assert [each.id for each in await database.agents.list_agents(ann.id)] == ["ag_2"]


async def test_other_processes_are_told_of_every_change(
    database: Database, reopen: Callable[..., Awaitable[Database]], ann: User
) -> None:
    other = await reopen()
    async with asyncio.timeout(20), aclosing(other.signals.listen(AGENTS_CHANNEL)) as changes:
        assert await anext(changes) == ""
        # The first resynchronisation.
        await anext(changes)
        own = build_stored_agent("ag_1", ann.id)
        await database.agents.add(own)
        assert await anext(changes) in ("ag_1", "")
        await database.agents.delete(own)
        assert await anext(changes) in ("ag_1", "")


async def test_keys_of_a_later_version_are_ignored(database: Database, ann: User) -> None:
    await database.agents.add(build_stored_agent("ag_1", ann.id))
    text = '{"name": "N", "later": 1}'
    await database.executor.write(
        lambda connection: connection.exec_driver_sql(f"UPDATE agents SET definition = '{text}'")
    )
    assert (await database.agents.list_agents(ann.id))[0].agent == Agent("reviewer", "N")
