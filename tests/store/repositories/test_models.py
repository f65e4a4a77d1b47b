"""Models that admins added, in both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from toolyard.errors import NotFound, Outdated, Taken
from toolyard.store import Database
from toolyard.types.stored_model import StoredModel

Open = Callable[..., Awaitable[Database]]


async def test_a_model_is_read_as_it_was_stored(
    database: Database, reopen: Open, stored_model: StoredModel
) -> None:
    plain = StoredModel("a", "ollama", "llama3.2")
    await database.models.add_model(stored_model)
    await database.models.add_model(plain)
    other = await reopen()
    assert await other.models.list_models() == [plain, stored_model]
    assert await other.models.get_model(stored_model.name) == stored_model
    with pytest.raises(NotFound):
        await other.models.get_model("A")


async def test_a_name_is_taken_once(database: Database, stored_model: StoredModel) -> None:
    await database.models.add_model(stored_model)
    with pytest.raises(Taken) as exc_info:
        await database.models.add_model(replace(stored_model, label="Another"))
    assert exc_info.value.field == "name"
    assert await database.models.list_models() == [stored_model]


async def test_of_two_edits_of_one_version_the_second_gets_the_newer_version(
    database: Database, stored_model: StoredModel
) -> None:
    await database.models.add_model(stored_model)
    first = await database.models.save_model(replace(stored_model, label="First"))
    assert (first.revision, first.label) == (2, "First")
    with pytest.raises(Outdated) as conflict:
        await database.models.save_model(replace(stored_model, label="Second"))
    assert conflict.value.current == first
    assert await database.models.list_models() == [first]
    await database.models.delete_model(first.name)
    for change in (database.models.save_model(first), database.models.delete_model(first.name)):
        with pytest.raises(NotFound):
            await change


async def test_at_most_one_model_is_the_default(database: Database, stored_model: StoredModel) -> None:
    await database.models.add_model(replace(stored_model, is_default=True))
    await database.models.add_model(StoredModel("b", "ollama", "b", is_default=True))

    async def defaults() -> list[str]:
        return [each.name for each in await database.models.list_models() if each.is_default]

    assert await defaults() == ["b"]
    await database.models.save_model(replace(stored_model, is_default=True))
    assert await defaults() == [stored_model.name]


async def test_every_replica_is_notified_of_a_change(
    database: Database, reopen: Open, stored_model: StoredModel
) -> None:
    other = await reopen()
    messages = asyncio.Queue[str]()

    async def listen() -> None:
        async with aclosing(other.models.listen()) as listening:
            async for name in listening:
                messages.put_nowait(name)

    task = asyncio.ensure_future(listen())
    # The first message says that earlier ones may have been missed.
    assert await asyncio.wait_for(messages.get(), 30) == ""
    await database.models.add_model(stored_model)
    assert await asyncio.wait_for(messages.get(), 30) in ("", stored_model.name)
    await database.models.delete_model(stored_model.name)
    assert await asyncio.wait_for(messages.get(), 30) in ("", stored_model.name)
    task.cancel()
    await asyncio.wait({task})
