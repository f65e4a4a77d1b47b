"""JSON of models and servers as text that both databases hold and that every reader can write again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

__all__ = ["json_text", "repair_surrogates"]

_MAX_DEPTH = 100
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON object, whatever is inside. What JSON has no word for is kept as the nearest thing that it has:
    half a character as the sign for one that is missing, no number as null, a number of more than 64 bits and
    any other object as its text, what is nested too deeply as an ellipsis."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_to_json_value(value, _MAX_DEPTH)).decode()


def repair_surrogates(text: str) -> str:
    """The same text with pairs of surrogates joined, and the sign for a missing character in place of a half
    one."""
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
    """Python refuses to write numbers of more than some thousand digits in decimal."""
    return str(number) if number.bit_length() < 4_096 else hex(number)
