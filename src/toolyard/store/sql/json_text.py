"""JSON of models and servers as text that both databases hold and that every reader can write again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import orjson

__all__ = ["json_text", "whole_text"]

_DEEPEST = 100
_LEAST, _MOST = -(2**63), 2**64 - 1


def json_text(value: Mapping[str, Any]) -> str:
    """A JSON object, whatever is inside. What JSON has no word for is kept as the nearest thing that it has:
    half a character as the sign for one that is missing, no number as null, a number of more than 64 bits and
    any other object as its text, what is nested too deeply as an ellipsis."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_plain(value, _DEEPEST)).decode()


def whole_text(text: str) -> str:
    """The same text with pairs of surrogates joined, and the sign for a missing character in place of a half
    one."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if _LEAST <= value <= _MOST else _digits(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if not depth:
            return "…"
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return {whole_text(str(key)): _plain(item, depth - 1) for key, item in items}
        return [_plain(item, depth - 1) for item in cast("list[Any]", value)]
    return whole_text(str(value))


def _digits(number: int) -> str:
    """Python refuses to write numbers of more than some thousand digits in decimal."""
    return str(number) if number.bit_length() < 4_096 else hex(number)
