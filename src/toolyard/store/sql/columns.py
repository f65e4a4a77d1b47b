"""Column types that behave the same in SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import BigInteger, Boolean, Column, Dialect, Double, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from toolyard.store.errors import Unstorable
from toolyard.types.registry import RecordField, record_fields

__all__ = [
    "MAX_INDEXED_CHARACTERS",
    "MAX_TEXT_CHARACTERS",
    "Dollars",
    "LimitedText",
    "RowNumber",
    "Seconds",
    "TextList",
    "build_record_columns",
    "check_text",
    "clean_text",
]

MAX_INDEXED_CHARACTERS = 500
"""Maximum length of indexed text. PostgreSQL indexes up to 2,704 bytes, and a character takes up to four."""
MAX_TEXT_CHARACTERS = 1_000_000
"""Maximum length of other text."""
_MAX_ENUM_CHARACTERS = 20


def check_text(text: str, limit: int) -> None:
    """Raise Unstorable for text that either database would refuse, so that both refuse the same."""
    if "\0" in text:
        raise Unstorable("the text contains a NUL character, which cannot be stored", hint="remove it")
    if len(text) > limit:
        raise Unstorable(f"the text has {len(text):,} characters; the maximum is {limit:,}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unstorable(
                "the text contains a lone surrogate (half a character)", hint="remove it"
            ) from None


def clean_text(text: str, limit: int) -> str:
    """Cut text and replace characters that cannot be stored; for text of servers that must not be refused."""
    if text.isascii() and "\0" not in text:
        return text[:limit]
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()[:limit]


class LimitedText(TypeDecorator[str]):
    """Text of at most ``limit`` characters."""

    impl = Text
    cache_ok = True

    def __init__(self, limit: int = MAX_TEXT_CHARACTERS) -> None:
        super().__init__()
        self.limit = limit

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is not None:
            check_text(value, self.limit)
        return value


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
