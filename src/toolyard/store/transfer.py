"""Copy of all lasting data from SQLite to PostgreSQL, in one transaction. The SQLite file stays unchanged."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import SQLAlchemyError

from toolyard.catalog.sqlite_storage import CATALOGUE_FILE_NAME, read_pin_entries
from toolyard.store.errors import DatabaseUnusable
from toolyard.store.repositories.listings import pin_digest
from toolyard.store.sql import tables
from toolyard.store.sql.dialects import Engines, TimeLimits
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.open import open_database

__all__ = ["copy_sqlite_to_postgresql"]

_BATCH_ROWS = 500
_EXCLUDED_TABLES = {
    tables.attempts,
    tables.auth_pending,
    tables.catalogues,
    tables.keys,
    tables.letters,
    tables.questions,
    tables.sign_ins,
}
"""Tables with short-lived rows, rows that are fetched again, and the key check of each database."""
_TABLES_TO_COPY = [table for table in tables.metadata.sorted_tables if table not in _EXCLUDED_TABLES]


def copy_sqlite_to_postgresql(
    data_dir: Path,
    url: str,
    secret_key: str,
    former_key: str | None,
    limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
) -> dict[str, int]:
    """Copy the SQLite database of a directory into an empty PostgreSQL database.

    Return the number of rows by table. Both databases use the same key, so ciphertexts are copied as they
    are. The file is locked meanwhile, and writes by running servers wait. Blocks; call it in a worker thread.
    Raises StoreError; nothing was copied then.
    """
    with ExitStack() as exit_stack:
        source, target = (
            _open_engines(exit_stack, data_dir, database_url, secret_key, former_key, limits)
            for database_url in (None, url)
        )
        try:
            # The writer's transaction holds SQLite's write lock, so no running server can add rows that
            # would be missing in the copy.
            with source.writer.begin() as source_connection, target.writer.begin() as target_connection:
                _require_empty(target_connection, target)
                copied = {
                    table.name: _copy_table(table, source_connection, target_connection)
                    for table in _TABLES_TO_COPY
                }
                copied[tables.config_pins.name] += _copy_first_use_pins(
                    data_dir / CATALOGUE_FILE_NAME, target_connection
                )
                return copied
        except SQLAlchemyError as error:
            raise unavailable_error(target, error) from error


def _open_engines(
    exit_stack: ExitStack,
    data_dir: Path,
    url: str | None,
    secret_key: str,
    former_key: str | None,
    limits: TimeLimits,
) -> Engines:
    engines, _ = open_database(data_dir, url, secret_key, former_key, limits)
    exit_stack.callback(engines.dispose)
    return engines


def _require_empty(connection: Connection, target: Engines) -> None:
    used_tables = [
        table.name for table in _TABLES_TO_COPY if connection.execute(select(table).limit(1)).first()
    ]
    if used_tables:
        raise DatabaseUnusable(
            f"the database {target.display_name} is not empty: it has the tables {', '.join(used_tables)}",
            hint="create an empty database, and run this command before Toolyard uses it",
        )


def _copy_table(table: Table, source: Connection, target: Connection) -> int:
    # Skip generated ids: PostgreSQL generates new ones in the same order, and its sequence stays right.
    columns = [column for column in table.columns if (table, column.name) != (tables.audit, "id")]
    rows = source.execute(select(*columns).order_by(*table.primary_key.columns)).mappings()
    count = 0
    for batch in rows.partitions(_BATCH_ROWS):
        target.execute(insert(table), [dict(row) for row in batch])
        count += len(batch)
    return count


def _copy_first_use_pins(file: Path, target: Connection) -> int:
    """Copy the pins of configured servers, which are stored beside their listings, outside the database."""
    try:
        entries = read_pin_entries(file)
    except sqlite3.Error as error:
        raise DatabaseUnusable(
            f"the accepted tool definitions in {file} cannot be read: {error}",
            hint="remove the file; the tools that each server lists next are then accepted",
        ) from error
    for key, entry in entries:
        row = {"digest": pin_digest(key), "server_id": key.server_id, "instance_id": key.instance_id}
        target.execute(insert(tables.config_pins).values(**row, **asdict(entry)))
    return len(entries)
