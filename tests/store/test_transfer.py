"""From SQLite to PostgreSQL: every table, row for row, or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, Table, func, insert, select

from toolyard.auth.storage import OAuthGrant
from toolyard.store import Database
from toolyard.store.errors import DatabaseUnavailable, DatabaseUnusable, WrongKey
from toolyard.store.sql.columns import LimitedText, TextList
from toolyard.store.sql.dialects import Engines
from toolyard.store.sql.open import open_database
from toolyard.store.sql.tables import audit, catalogues, keys, metadata, users
from toolyard.store.transfer import copy_sqlite_to_postgresql

KEY = "the key that both have"
PASSING = {"attempts", "auth_pending", "catalogues", "keys", "letters", "questions", "sign_ins"}
LASTING = [table for table in metadata.sorted_tables if table.name not in PASSING]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Engines]:
    """A file with two rows in every table."""
    engines, _ = open_database(tmp_path, None, KEY)
    with engines.writer.begin() as connection:
        for table in metadata.sorted_tables:
            for number in (1, 2) if table is not keys else ():
                connection.execute(insert(table).values(row(table, number)))
    yield engines
    engines.dispose()


@pytest.fixture
def target(tmp_path: Path, postgres_url: str) -> Iterator[Engines]:
    engines, _ = open_database(tmp_path, postgres_url, KEY)
    yield engines
    engines.dispose()


def row(table: Table, number: int) -> dict[str, Any]:
    return {column.name: value(column, number) for column in table.columns}


def value(column: Column[Any], number: int) -> Any:
    for key in column.foreign_keys:
        return value(key.column, number)
    kind = column.type
    if isinstance(kind, LimitedText):
        return f"{column.table.name}.{column.name} é {number}"[-kind.limit :]
    if isinstance(kind, TextList):
        return ("a", f"b {number}")
    if isinstance(kind, LargeBinary):
        return bytes([0, number, 255])
    if isinstance(kind, Boolean):
        return number == 1
    return number if isinstance(kind, Integer | BigInteger) else number + 0.25


def rows(engines: Engines, table: Table) -> list[tuple[Any, ...]]:
    with engines.reader.connect() as connection:
        return [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]


def test_every_row_of_every_table_that_lasts_is_copied(
    source: Engines, target: Engines, postgres_url: str, tmp_path: Path
) -> None:
    assert copy_sqlite_to_postgresql(tmp_path, postgres_url, KEY, None) == {
        table.name: 2 for table in LASTING
    }
    for table in LASTING:
        assert rows(target, table) == rows(source, table), table.name
    assert rows(target, catalogues) == []
    with target.writer.begin() as connection:
        entry = row(audit, 3)
        del entry["id"]
        connection.execute(insert(audit).values(entry))
    assert [each[0] for each in rows(target, audit)] == [1, 2, 3], "the database counts on"


async def test_encrypted_records_can_be_read_after_the_transfer(
    grant: OAuthGrant, postgres_url: str, tmp_path: Path
) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=KEY)
    await database.auth.put_grant("config:docs", grant)
    await database.close()
    await asyncio.to_thread(copy_sqlite_to_postgresql, tmp_path, postgres_url, KEY, None)
    other_database = await Database.open(tmp_path, url=postgres_url, secret_key=KEY)
    assert await other_database.auth.get_grant("config:docs") == grant
    await other_database.close()


def test_a_target_that_is_not_empty_is_left_unchanged(
    source: Engines, target: Engines, postgres_url: str, tmp_path: Path
) -> None:
    with target.writer.begin() as connection:
        connection.execute(insert(users).values(row(users, 7)))
    with pytest.raises(DatabaseUnusable, match="is not empty: it has the tables users"):
        copy_sqlite_to_postgresql(tmp_path, postgres_url, KEY, None)
    assert [len(rows(target, table)) for table in LASTING] == [int(table is users) for table in LASTING]


def test_a_row_that_cannot_be_copied_leaves_nothing_behind(
    source: Engines, target: Engines, postgres_url: str, tmp_path: Path
) -> None:
    with target.writer.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE audit ADD CHECK (id < 2)")
    with pytest.raises(DatabaseUnavailable):
        copy_sqlite_to_postgresql(tmp_path, postgres_url, KEY, None)
    with target.reader.connect() as connection:
        assert connection.execute(select(func.count()).select_from(users)).scalar() == 0


@pytest.mark.usefixtures("source")
def test_another_key_is_refused_before_anything_is_copied(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(WrongKey):
        copy_sqlite_to_postgresql(tmp_path, postgres_url, "another key altogether", None)
