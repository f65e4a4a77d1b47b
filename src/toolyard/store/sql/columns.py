"""Column types that behave alike in both databases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import BigInteger, Dialect, Double, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

from toolyard.store.errors import Unstorable

__all__ = [
    "MAX_INDEXED_CHARACTERS",
    "MAX_TEXT_CHARACTERS",
    "LimitedText",
    "RowNumber",
    "Seconds",
    "TextList",
    "check_text",
    "clean_text",
]

MAX_INDEXED_CHARACTERS = 500
"""Characters that go into an index: PostgreSQL takes 2,704 bytes, and a character may have four."""
MAX_TEXT_CHARACTERS = 1_000_000


def check_text(text: str, limit: int) -> None:
    """Raises Unstorable for what one of the databases would refuse, so that both refuse the same."""
    if "\0" in text:
        raise Unstorable("a text holds a NUL character, which cannot be stored", hint="remove it")
    if len(text) > limit:
        raise Unstorable(f"a text has {len(text):,} characters; at most {limit:,} can be stored here")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unstorable("a text holds half a character (a lone surrogate)", hint="remove it") from None


def clean_text(text: str, limit: int) -> str:
    """The same text without what cannot be stored, for words of others that must be kept somehow."""
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
    """A list of texts, as JSON. None stays None."""

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
    """A number that the database gives to each new row. SQLite counts only in its own INTEGER."""
    return BigInteger().with_variant(Integer(), "sqlite")


def Seconds() -> TypeEngine[float]:
    """A time since the epoch, or a duration."""
    return Double(asdecimal=False)
