"""From SQLite to PostgreSQL: all that lasts, in one transaction. The file stays as it was."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.exc import SQLAlchemyError

from toolyard.store.errors import DatabaseUnusable
from toolyard.store.sql.dialects import Engines, TimeLimits
from toolyard.store.sql.executor import unavailable
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

__all__ = ["move"]

_BATCH = 500
_PASSING = {attempts, auth_pending, catalogues, keys, letters, sign_ins}
"""What is on its way, is found out again, or is each database's own."""
_LASTING = [table for table in metadata.sorted_tables if table not in _PASSING]


def move(
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
            _opened(closing, data_dir, each, secret_key, former_key, limits) for each in (None, url)
        )
        try:
            with source.writer.begin() as held, target.writer.begin() as taking:
                _check(taking, target)
                return {table.name: _copied(table, held, taking) for table in _LASTING}
        except SQLAlchemyError as error:
            raise unavailable(target, error) from error


def _opened(
    closing: ExitStack,
    data_dir: Path,
    url: str | None,
    secret_key: str,
    former_key: str | None,
    limits: TimeLimits,
) -> Engines:
    engines, _ = open_database(data_dir, url, secret_key, former_key, limits)
    closing.callback(engines.dispose)
    return engines


def _check(connection: Connection, target: Engines) -> None:
    found = [table.name for table in _LASTING if connection.execute(select(table).limit(1)).first()]
    if found:
        raise DatabaseUnusable(
            f"the database {target.where} is not empty: it has {', '.join(found)}",
            hint="make another one, and do this before a server has used it",
        )


def _copied(table: Table, source: Connection, target: Connection) -> int:
    # Numbers that the database gives are given anew, in the same order.
    columns = [column for column in table.columns if (table, column.name) != (audit, "id")]
    rows = source.execute(select(*columns).order_by(*table.primary_key.columns)).mappings()
    count = 0
    for some in rows.partitions(_BATCH):
        target.execute(insert(table), [dict(row) for row in some])
        count += len(some)
    return count
