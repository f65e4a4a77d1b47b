"""A database of an older version becomes one of this version, with everything in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from toolyard.store import Database
from toolyard.store.errors import DatabaseOutdated
from toolyard.store.sql import migrate, open
from toolyard.store.sql.dialects import TimeLimits
from toolyard.types.account import Invite, Role
from toolyard.types.audit import AuditEntry
from toolyard.types.chat import Chat

KEY = "a key for tests, long enough"
SINCE_0001 = {"approvals", "chat_events", "chats", "config_pins", "grants", "pins", "results"}


async def open_database(data: Path, url: str | None) -> Database:
    return await Database.open(data, url=url, secret_key=KEY)


async def tables(database: Database) -> set[str]:
    return await database.executor.read(lambda c: set(inspect(c).get_table_names()))


@contextmanager
def code_of_revision(revision: str) -> Iterator[None]:
    """Make a new database get the tables of an older version, from the migration scripts."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (migrate, open):
            patch.setattr(module, "HEAD", revision)
        patch.setattr(migrate, "create_schema", lambda connection: migrate.upgrade_schema(connection, None))
        yield


async def insert_old_entries(database: Database, entries: Iterable[AuditEntry]) -> None:
    """Write audit entries with the columns of the first version."""
    names = ("at", "action", "actor", "actor_name", "target", "outcome", "address", "details")
    statement = text(f"INSERT INTO audit ({', '.join(names)}) VALUES (:{', :'.join(names)})")
    rows = [
        {**{name: getattr(one, name) for name in names}, "details": json.dumps(one.details)}
        for one in entries
    ]

    def work(connection: Connection) -> None:
        connection.execute(statement, rows)

    await database.executor.write(work)


@pytest.fixture
async def old(database_url: str | None, tmp_path: Path) -> str:
    """The id of a user in a database at the first revision, which is closed."""
    with code_of_revision("0001"):
        database = await open_database(tmp_path, database_url)
        user = await database.accounts.add_user("Ann", Role.USER)
        assert not SINCE_0001 & await tables(database)
        await database.close()
    return user.id


async def test_a_database_at_the_first_revision_gets_the_other_tables(
    old: str, database_url: str | None, tmp_path: Path
) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from toolyard.store.sql.tables import metadata

    def differences(connection: Any) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    database = await open_database(tmp_path, database_url)
    assert await database.executor.read(migrate.read_schema_version) == migrate.HEAD
    assert await tables(database) >= SINCE_0001
    assert await database.executor.read(differences) == []
    assert await database.accounts.get_user(old) is not None
    await database.chats.create(Chat("chat-1", old, "", 1.0, 1.0))
    await database.accounts.delete_user(old)
    assert await database.chats.get(old, "chat-1") is None
    await database.close()


async def test_roles_that_were_granted_and_open_invites_survive_the_upgrade(
    database_url: str | None, tmp_path: Path
) -> None:
    """Accounts of every mode, as revision 0004 stored them."""
    accounts = [
        # id, password, subject, last seen, role afterwards
        ("local", None, None, 1.0, Role.ADMIN),
        ("password", "hash", None, 1.0, Role.ADMIN),
        ("invited", None, None, None, Role.ADMIN),
        ("proxy", None, None, 1.0, Role.USER),
        ("oidc", None, "https://id.example|1", 1.0, Role.USER),
    ]
    add_user = (
        "INSERT INTO users"
        " (id, name, name_key, role, created_at, disabled, password_hash, subject, last_seen)"
        " VALUES (:id, :id, :id, 'admin', 1, :no, :password, :subject, :seen)"
    )
    add_invite = (
        "INSERT INTO invites (digest, user_name, name_key, role, expires_at)"
        " VALUES (:name, :name, :name, 'admin', 100)"
    )

    def fill(connection: Any) -> None:
        for id_, password, subject, account, _ in accounts:
            values = {"id": id_, "password": password, "subject": subject, "seen": account, "no": False}
            connection.execute(text(add_user), values)
        for name in ("invited", "somebody who is gone"):
            connection.execute(text(add_invite), {"name": name})

    with code_of_revision("0004"):
        before = await open_database(tmp_path, database_url)
        await before.executor.write(fill)
        await before.close()
    database = await open_database(tmp_path, database_url)
    roles = {user.id: user.role for user in await database.accounts.list_users()}
    assert roles == {id_: role for id_, _, _, _, role in accounts}
    assert await database.accounts.find_invite("invited", 1.0) == Invite("invited", 100.0)
    assert await database.accounts.find_invite("somebody who is gone", 1.0) is None
    await database.close()


async def test_existing_users_do_not_get_the_first_steps(
    old: str, database_url: str | None, tmp_path: Path
) -> None:
    database = await open_database(tmp_path, database_url)
    hidden = {
        user.name: user.first_steps_hidden_at is not None
        for user in (
            await database.accounts.get_user(old),
            await database.accounts.add_user("Bob", Role.USER),
        )
        if user is not None
    }
    assert hidden == {"Ann": True, "Bob": False}
    await database.close()


async def test_of_many_simultaneous_openers_one_migrates(
    old: str, database_url: str | None, tmp_path: Path
) -> None:
    results = await asyncio.gather(*(open_database(tmp_path, database_url) for _ in range(4)))
    for database in results:
        assert await database.accounts.get_user(old) is not None
        assert await database.chats.list_chats(old) == []
        await database.close()


async def test_an_opener_waits_for_a_migration_of_any_length(postgres_url: str, tmp_path: Path) -> None:
    import psycopg

    waiting_query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '400 milliseconds'"
    )
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other:
        await other.execute("SELECT pg_advisory_lock(%s)", (migrate.MIGRATION_LOCK_ID,))
        limits = TimeLimits(statement=0.2)
        opening_it = asyncio.create_task(
            Database.open(tmp_path, url=postgres_url, secret_key=KEY, limits=limits)
        )
        async with asyncio.timeout(60):
            while not opening_it.done() and (await (await other.execute(waiting_query)).fetchone()) == (0,):
                await asyncio.sleep(0.05)
        await other.execute("SELECT pg_advisory_unlock(%s)", (migrate.MIGRATION_LOCK_ID,))
        database = await opening_it
    assert await database.executor.read(migrate.read_schema_version) == migrate.HEAD
    await database.close()


async def test_a_file_that_another_process_uses_is_not_migrated(tmp_path: Path) -> None:
    with code_of_revision("0001"):
        before = await open_database(tmp_path, None)
    with pytest.raises(DatabaseOutdated, match="a process of that version uses it"):
        await Database.open(tmp_path, url=None, secret_key=KEY, migrates=False)
    assert "chats" not in await tables(before)
    # One that may migrate waits until the other has ended.
    opening = asyncio.create_task(open_database(tmp_path, None))
    await before.accounts.add_user("Ann", Role.USER)
    await before.close()
    after, other = await asyncio.gather(opening, open_database(tmp_path, None))
    assert "chats" in await tables(other)
    await after.close()
    await other.close()
