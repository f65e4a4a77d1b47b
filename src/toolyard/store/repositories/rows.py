"""Helpers of repositories: limits on the number of rows of one owner, and conversion between rows and records
whose fields are declared once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, Connection, Table, delete, func, select

from toolyard.errors import LimitReached
from toolyard.store.sql.cipher import Cipher
from toolyard.types.plurals import format_count
from toolyard.types.registry import record_fields

__all__ = ["RecordMapper", "batches", "delete_all_but_newest", "require_below_limit", "secret_location"]


def batches(items: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    """Yield the items in parts, each small enough for the parameters of one query."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def secret_location(column: Column[Any], *key: str) -> str:
    """Return the associated data that binds a secret to its column and row."""
    return f"{column.table.name}.{column.name}:{':'.join(key)}"


def delete_all_but_newest(
    connection: Connection, table: Table, condition: Any, newest_by: Any, max_rows: int
) -> int:
    """Delete the oldest matching rows beyond a number; return the number of deleted rows.

    For rows whose owner would rather lose the oldest than be refused a new one.
    """
    [key] = table.primary_key.columns
    excess = select(key).where(condition).order_by(newest_by.desc(), key).offset(max_rows)
    return connection.execute(delete(table).where(key.in_(excess))).rowcount


def require_below_limit(
    connection: Connection, condition: Any, max_rows: int, noun: str, setting: str
) -> None:
    """Raise LimitReached if there are as many matching rows as allowed; 0 means no limit.

    Concurrent transactions of PostgreSQL may exceed the limit by one row each.
    """
    if max_rows and connection.execute(select(func.count()).where(condition)).scalar_one() >= max_rows:
        raise LimitReached(
            f"the limit of {format_count(max_rows, noun)} is reached",
            hint=f"delete {noun}s that you no longer need, or ask an admin to raise {setting}",
        )


R = TypeVar("R")
T = TypeVar("T")


class RecordMapper(Generic[R]):
    """Maps records of one type to rows of their table, and back."""

    def __init__(self, record: type[R], table: Table) -> None:
        fields = [each for each in record_fields(record) if each.spec.stored]
        self._record = record
        self._table = table
        self._names = [each.name for each in fields]
        self._secrets = [each.name for each in fields if each.spec.secret]
        # One page may show a thousand instances of a user, and calling an enum class costs more than the rest
        # of the conversion.
        self._members = {each.name: {m.value: m for m in each.type} for each in fields if each.is_enum}
        self._keys = [column.name for column in table.primary_key]
        self.select = select(*(table.c[name] for name in dict.fromkeys([*self._names, *self._keys])))

    def load(self, row: Any, cipher: Cipher, **more: Any) -> R:
        """Build a record from a row of ``select``. ``more`` are its fields without a column."""
        columns: dict[str, Any] = row._asdict()
        for name, members in self._members.items():
            columns[name] = members[columns[name]]
        for name in self._secrets:
            if columns[name] is not None:
                columns[name] = cipher.decrypt_text(columns[name], self._secret_location(name, columns))
        return self._record(**{name: columns[name] for name in self._names}, **more)

    def values(self, record: R, cipher: Cipher, **more: Any) -> dict[str, Any]:
        """Return the columns of a record. ``more`` are the columns that it has no fields for."""
        columns = {name: getattr(record, name) for name in self._names} | more
        for name in self._members:
            columns[name] = columns[name].value
        for name in self._secrets:
            columns[name] = cipher.encrypt_text(columns[name], self._secret_location(name, columns))
        return columns

    def _secret_location(self, name: str, columns: Mapping[str, Any]) -> str:
        return secret_location(self._table.c[name], *(columns[key] for key in self._keys))
