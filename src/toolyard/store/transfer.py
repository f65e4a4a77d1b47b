"""From SQLite to PostgreSQL: all that lasts, in one transaction. The file stays as it was."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import SQLAlchemyError

from toolyard.store.errors import DatabaseUnusable
from toolyard.store.sql.dialects import Engines, TimeLimits
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.open import open_database
from toolyard.store.sql.tables import (
    attempts,
    audit,
    auth_pending,
    catalogues,
    keys,
    letters,
    metadata,
    sign_ins,
)

__all__ = ["copy_sqlite_to_postgresql"]

_BATCH_ROWS = 500
_EXCLUDED_TABLES = {attempts, auth_pending, catalogues, keys, letters, sign_ins}
"""What is on its way, is found out again, or is each database's own."""
_TABLES_TO_COPY = [table for table in metadata.sorted_tables if table not in _EXCLUDED_TABLES]


def copy_sqlite_to_postgresql(
    data_dir: Path,
    url: str,
    secret_key: str,
    former_key: str | None,
    limits: TimeLimits = TimeLimits(),  # noqa: B008 - frozen
) -> dict[str, int]:
    """Copy what the SQLite database of a folder keeps into an empty PostgreSQL; how many rows of each table.

    Both have the same key, so what is encrypted stays as it is. Servers that use the file wait meanwhile.
    Blocks; for a worker thread. Raises StoreError, and then nothing was copied.
    """
    with ExitStack() as closing:
        source, target = (
            _open_engines(closing, data_dir, each, secret_key, former_key, limits) for each in (None, url)
        )
        try:
            with source.writer.begin() as held, target.writer.begin() as taking:
                _require_empty(taking, target)
                return {table.name: _copy_table(table, held, taking) for table in _TABLES_TO_COPY}
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
    found = [table.name for table in _TABLES_TO_COPY if connection.execute(select(table).limit(1)).first()]
    if found:
        raise DatabaseUnusable(
            f"the database {target.display_name} is not empty: it has {', '.join(found)}",
            hint="make another one, and do this before a server has used it",
        )


def _copy_table(table: Table, source: Connection, target: Connection) -> int:
    # Numbers that the database gives are given anew, in the same order.
    columns = [column for column in table.columns if (table, column.name) != (audit, "id")]
    rows = source.execute(select(*columns).order_by(*table.primary_key.columns)).mappings()
    count = 0
    for some in rows.partitions(_BATCH_ROWS):
        target.execute(insert(table), [dict(row) for row in some])
        count += len(some)
    return count
