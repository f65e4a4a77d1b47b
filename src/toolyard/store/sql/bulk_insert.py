"""Many rows in one statement, where PostgreSQL's driver would send one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table, TextClause, bindparam, text, update

__all__ = ["insert_many", "update_many"]


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all name the same columns."""
    if connection.dialect.name == "sqlite":
        connection.execute(table.insert(), rows)
    else:
        names = tuple(rows[0])
        connection.execute(
            _insert_from_arrays(table, names), {name: [row[name] for row in rows] for name in names}
        )


def update_many(connection: Connection, table: Table, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Change rows that a column tells apart; all name the same columns."""
    names = tuple(rows[0])
    if connection.dialect.name == "sqlite":
        changing = update(table).where(table.c[key] == bindparam(f"to_{key}"))
        changing = changing.values({name: bindparam(f"to_{name}") for name in names if name != key})
        connection.execute(changing, [{f"to_{name}": row[name] for name in names} for row in rows])
    else:
        values = {name: [row[name] for row in rows] for name in names}
        connection.execute(_update_from_arrays(table, key, names), values)


@cache
def _insert_from_arrays(table: Table, names: tuple[str, ...]) -> TextClause:
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT * FROM {_unnest_expression(table, names)}"
    )


@cache
def _update_from_arrays(table: Table, key: str, names: tuple[str, ...]) -> TextClause:
    changes = ", ".join(f"{name} = given.{name}" for name in names if name != key)
    given = f"{_unnest_expression(table, names)} AS given({', '.join(names)})"
    return text(f"UPDATE {table.name} SET {changes} FROM {given} WHERE {table.name}.{key} = given.{key}")


def _unnest_expression(table: Table, names: tuple[str, ...]) -> str:
    """Rows, given as an array for each column."""
    from sqlalchemy.dialects.postgresql import dialect  # only with that database

    kinds = [f"CAST(:{name} AS {table.c[name].type.compile(dialect())}[])" for name in names]
    return f"unnest({', '.join(kinds)})"
