"""Values as they are stored: texts that both databases accept, folded names, digests as keys, and JSON.

This module does not load SQLAlchemy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast
from unicodedata import normalize

import orjson

from toolyard.store.errors import Unstorable

__all__ = [
    "MAX_INDEXED_CHARACTERS",
    "MAX_TEXT_CHARACTERS",
    "check_text",
    "clean_text",
    "compute_digest",
    "fold_case",
    "json_text",
    "repair_surrogates",
]

MAX_INDEXED_CHARACTERS = 500
"""Maximum length of indexed text. PostgreSQL indexes up to 2,704 bytes, and a character takes up to four."""
MAX_TEXT_CHARACTERS = 1_000_000
"""Maximum length of other text."""


def check_text(text: str | None, limit: int) -> str | None:
    """Return the text. Raise Unstorable for one that either database would refuse, so that both refuse the
    same."""
    if text is None:
        return None
    if "\0" in text:
        raise Unstorable("the text contains a NUL character, which cannot be stored", hint="remove it")
    if len(text) > limit:
        raise Unstorable(
            f"the text has {len(text):,} characters; the maximum is {limit:,}", hint="shorten the text"
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unstorable(
                "the text contains a lone surrogate (half a character)", hint="remove it"
            ) from None
    return text


def clean_text(text: str, limit: int) -> str:
    """Cut text and replace characters that cannot be stored; for text of servers that must not be refused."""
    if text.isascii() and "\0" not in text:
        return text[:limit]
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()[:limit]


def fold_case(name: str) -> str:
    """Return a key that is equal for names differing only in case or in their Unicode encoding.

    Implements Unicode's compatibility caseless matching (definition D146).
    """
    if name.isascii():
        return name.lower()
    # D146 folds twice: the compatibility decomposition can produce characters that fold again.
    once = normalize("NFKD", normalize("NFD", name).casefold())
    return normalize("NFKD", once.casefold())


def compute_digest(*parts: str) -> str:
    """Return the SHA-256 of texts, in hexadecimal.

    Each text is prefixed with its length, so that ("ab", "c") and ("a", "bc") differ.
    """
    hashed = hashlib.sha256()
    for part in parts:
        # A key with a lone surrogate matches no stored row; looking it up must not raise.
        encoded = part.encode(errors="surrogatepass")
        hashed.update(b"%d:" % len(encoded))
        hashed.update(encoded)
    return hashed.hexdigest()


_MAX_DEPTH = 100
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


def json_text(value: Mapping[str, Any]) -> str:
    """Serialize a JSON object. Never fails for its content.

    Values without a JSON form are replaced: a lone surrogate by U+FFFD, NaN by null, an integer of more than
    64 bits and any other object by its text, and values nested too deeply by an ellipsis. An integer becomes
    text so that an approved argument cannot turn into a different number.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_to_json_value(value, _MAX_DEPTH)).decode()


def repair_surrogates(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _to_json_value(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if _MIN_INTEGER <= value <= _MAX_INTEGER:
            return value
        # Decimal digits, or hexadecimal ones where Python's limit on decimal conversion could apply.
        return str(value) if value.bit_length() < 4_096 else hex(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if not depth:
            return "…"
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {repair_surrogates(str(key)): _to_json_value(item, depth - 1) for key, item in items}
        return [_to_json_value(item, depth - 1) for item in cast("list[Any]", value)]
    return repair_surrogates(str(value))
