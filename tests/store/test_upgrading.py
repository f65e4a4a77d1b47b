"""A database of an older version becomes one of this version, with everything in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from toolyard.model.chat import Chat
from toolyard.model.people import Role
from toolyard.store import Database, migrating, opening

KEY = "a key for tests, long enough"
SINCE_0001 = {"approvals", "chat_events", "chats", "grants", "pins", "results"}


async def open_database(data: Path, url: str | None) -> Database:
    return await Database.open(data, url=url, secret_key=KEY)


async def tables(database: Database) -> set[str]:
    return await database._workshop.read(lambda c: set(inspect(c).get_table_names()))


@pytest.fixture
async def old(database_url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a user in a database at the first revision, which is closed."""
    with monkeypatch.context() as patched:
        for module in (migrating, opening):
            patched.setattr(module, "HEAD", "0001")
        database = await open_database(tmp_path, database_url)
        user = await database.people.add_user("Ann", Role.USER)
        assert not SINCE_0001 & await tables(database)
        await database.close()
    return user.id


async def test_a_database_at_the_first_revision_gets_the_other_tables(
    old: str, database_url: str | None, tmp_path: Path
) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from toolyard.store.tables import metadata

    def differences(connection: Any) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    database = await open_database(tmp_path, database_url)
    assert await database._workshop.read(migrating.version) == migrating.HEAD
    assert await tables(database) >= SINCE_0001
    assert await database._workshop.read(differences) == []
    assert await database.people.user(old) is not None
    await database.chats.create(Chat("chat-1", old, "", 1.0, 1.0))
    await database.people.delete_user(old)
    assert await database.chats.get(old, "chat-1") is None
    await database.close()


async def test_of_many_who_open_it_at_once_one_changes_it(
    old: str, database_url: str | None, tmp_path: Path
) -> None:
    opened = await asyncio.gather(*(open_database(tmp_path, database_url) for _ in range(4)))
    for database in opened:
        assert await database.people.user(old) is not None
        assert await database.chats.chats(old) == []
        await database.close()
