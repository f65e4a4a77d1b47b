"""Migrations of a shared database: only the server and ``toolyard migrate`` run them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.store.sql.test_migrations import code_of_revision

from toolyard.store import Database

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

KEY = "a key for tests, long enough"
OLD = "0008"


@pytest.fixture
def old_postgres_url(cli: Cli, postgres_url: str) -> str:
    """A PostgreSQL database with the tables of an earlier version."""

    async def create() -> None:
        await (await Database.open(cli.data, url=postgres_url, secret_key=KEY)).close()

    with code_of_revision(OLD):
        asyncio.run(create())
    cli.env |= {"TOOLYARD_DATABASE_URL": postgres_url, "TOOLYARD_SECRET_KEY": KEY}
    return postgres_url


def revision(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row is not None
    return row[0]


def test_only_migrate_changes_the_tables_of_an_earlier_version(cli: Cli, old_postgres_url: str) -> None:
    for words in (("users", "list"), ("chat", "--list")):
        result = cli(*words)
        assert result.code == 2
        assert f"the tables of an earlier version of Toolyard (revision {OLD}" in result.err
        assert "hint: run `toolyard migrate`" in result.err
    diagnosis = cli("doctor")
    assert diagnosis.code == 0
    assert "no  database        the database has the tables of an earlier version" in diagnosis.out
    assert "hint: run `toolyard migrate`" in diagnosis.out
    assert revision(old_postgres_url) == OLD
    migration_result = cli("migrate", "--json")
    assert json.loads(migration_result.out) == {"revision": revision(old_postgres_url)}
    assert revision(old_postgres_url) > OLD
    assert cli("users", "list").code == 0
    assert "ok  database        PostgreSQL, can be used" in cli("doctor").out


def test_a_tool_that_cannot_be_compared_in_an_outdated_database_says_where_the_cause_is(
    cli: Cli, old_postgres_url: str, demo: dict[str, Any]
) -> None:
    cli.env["TOOLYARD_WRITE_TOOLS"] = "allow"
    cli.write({"mcpServers": {"demo": {**demo, "trust": "untrusted", "allowTools": ["count"]}}})
    result = cli("call", "demo_count")
    assert "it could not be compared with the accepted definition" in result.err
    assert "hint: `toolyard lock --diff` and the log show the cause" in result.err
    assert f"an earlier version of Toolyard (revision {OLD}" in cli("lock", "--diff").err
    assert revision(old_postgres_url) == OLD


def test_a_command_creates_the_tables_of_an_empty_database(cli: Cli, postgres_url: str) -> None:
    cli.env |= {"TOOLYARD_DATABASE_URL": postgres_url, "TOOLYARD_SECRET_KEY": KEY}
    assert cli("users", "list").code == 0
    assert revision(postgres_url) > OLD
