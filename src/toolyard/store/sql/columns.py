"""Column types that behave the same in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
from sqlalchemy import BigInteger, Boolean, Column, Dialect, Double, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from toolyard.store.sql.stored_values import MAX_TEXT_CHARACTERS, check_text
from toolyard.types.registry import RecordField, record_fields

__all__ = [
    "Dollars",
    "LimitedText",
    "RowNumber",
    "Seconds",
    "TextList",
    "build_record_columns",
]

_MAX_ENUM_CHARACTERS = 20


class LimitedText(TypeDecorator[str]):
    """Text of at most ``limit`` characters."""

    impl = Text
    cache_ok = True

    def __init__(self, limit: int = MAX_TEXT_CHARACTERS) -> None:
        super().__init__()
        self.limit = limit

    def bind_processor(self, dialect: Dialect) -> partial[str | None]:
        # Texts are most of all parameters. ``process_bind_param`` would cost two more calls for each.
        return partial(check_text, limit=self.limit)


class TextList(TypeDecorator[Sequence[str]]):
    """List of texts, stored as JSON. None stays None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        for text in value:
            check_text(text, MAX_TEXT_CHARACTERS)
        return orjson.dumps(list(value)).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[str, ...] | None:
        if value is None:
            return None
        return () if value == "[]" else tuple(orjson.loads(value))


def RowNumber() -> TypeEngine[int]:
    """Return the type of a generated row number. SQLite generates numbers only for its type INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def Seconds() -> TypeEngine[float]:
    """Return the type of a time since the epoch, or of a duration, in seconds."""
    return Double(asdecimal=False)


def Dollars() -> TypeEngine[float]:
    """Return the type of an amount of money."""
    return Double(asdecimal=False)


def build_record_columns(record: type[Any], *, without: str) -> list[Column[Any]]:
    """Return the columns of a registry record, except those named in ``without``, which are declared."""
    return [
        Column(each.name, _column_type(each), nullable=each.optional)
        for each in record_fields(record)
        if each.spec.stored and each.name not in without.split()
    ]


def _column_type(record_field: RecordField) -> TypeEngine[Any]:
    if record_field.spec.secret:
        return LargeBinary()
    if record_field.item_type is not None:
        return TextList()
    if record_field.allowed_values:
        return LimitedText(_MAX_ENUM_CHARACTERS)
    return {bool: Boolean, float: Seconds, int: Integer, str: LimitedText}[record_field.type]()
