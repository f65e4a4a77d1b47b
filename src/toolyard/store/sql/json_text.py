"""Serialization of JSON from models and servers to text that both databases and every JSON reader accept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

__all__ = ["json_text", "repair_surrogates"]

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
        return value if _MIN_INTEGER <= value <= _MAX_INTEGER else _integer_text(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if not depth:
            return "…"
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {repair_surrogates(str(key)): _to_json_value(item, depth - 1) for key, item in items}
        return [_to_json_value(item, depth - 1) for item in cast("list[Any]", value)]
    return repair_surrogates(str(value))


def _integer_text(number: int) -> str:
    """Return decimal digits, or hexadecimal ones where Python's limit on decimal conversion could apply."""
    return str(number) if number.bit_length() < 4_096 else hex(number)
