"""Conversion between records whose fields are declared once and the rows of their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from sqlalchemy import Table, select

from toolyard.store.sql.cipher import Cipher
from toolyard.types.registry import record_fields

__all__ = ["RecordRows"]

R = TypeVar("R")


class RecordRows(Generic[R]):
    """Conversion between records of one type and rows of their table."""

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
                columns[name] = cipher.decrypt_text(columns[name], self._associated_data(name, columns))
        return self._record(**{name: columns[name] for name in self._names}, **more)

    def values(self, record: R, cipher: Cipher, **more: Any) -> dict[str, Any]:
        """Return the columns of a record. ``more`` are the columns that it has no fields for."""
        columns = {name: getattr(record, name) for name in self._names} | more
        for name in self._members:
            columns[name] = columns[name].value
        for name in self._secrets:
            columns[name] = cipher.encrypt_text(columns[name], self._associated_data(name, columns))
        return columns

    def _associated_data(self, name: str, columns: Mapping[str, Any]) -> str:
        """Return the text that binds a secret to its column and row, as ``key_rotation`` expects it."""
        return f"{self._table.name}.{name}:{':'.join(columns[key] for key in self._keys)}"
