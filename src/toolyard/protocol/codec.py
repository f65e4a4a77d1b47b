"""JSON as bytes. Fast where it can be, exact where it must be."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias, cast

import orjson

from toolyard.protocol.byte_buffer import LARGE, Raw

__all__ = ["Written", "decode", "encode", "written"]

Written: TypeAlias = orjson.Fragment
"""A JSON value that is written already; it may stand wherever ``encode`` takes one."""

_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19
_STEP = 6
_PIECE = 64 * 1024
_FEW = 1000
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(data: Raw) -> Any:
    """Read one JSON value; raises ValueError where there is none.

    orjson turns integers beyond 64 bits into floats, so a text that may hold one is read by the
    standard library, which keeps them exact. What orjson refuses and JSON allows (a lone surrogate
    escape) is read with the broken character replaced.
    """
    large = len(data) > LARGE
    if large or not may_hold_long_number(data):
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            if b"\\u" not in bytes(data) and not (large and may_hold_long_number(data)):
                raise ValueError("not JSON") from None
        else:
            if not large or _is_exact(value) or not may_hold_long_number(data):
                return value
            del value  # It is large, and about to be made once more.
    return decode_exactly(data)


def _is_exact(value: Any) -> bool:
    """Whether these are few values, and none of them a float that was a longer integer.

    Most large messages are one long text. To look at what was read spares a way through all of its memory.
    """
    left, waiting = _FEW, [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            parts = cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            parts = cast("list[Any]", value)
        elif isinstance(value, float) and abs(value) >= 2**63:
            return False
        else:
            continue
        left -= len(parts)
        if left < 0:
            return False
        waiting.extend(parts)
    return True


def may_hold_long_number(data: Raw) -> bool:
    if len(data) <= _PIECE:
        return _LONG_NUMBER in bytes(data).translate(_DIGITS)
    # In pieces that stay in the processor's cache; each overlaps the next by what a number could straddle.
    view = memoryview(data)
    return any(
        _piece_may_hold_long_number(bytearray(view[start : start + _PIECE + len(_LONG_NUMBER) - 1]))
        for start in range(0, len(view), _PIECE)
    )


def _piece_may_hold_long_number(piece: bytearray) -> bool:
    # So many digits in a row are met several times even in long steps, which little else is.
    met = _LONG_NUMBER[: len(_LONG_NUMBER) // _STEP]
    return met in piece[::_STEP].translate(_DIGITS) and _LONG_NUMBER in piece.translate(_DIGITS)


def decode_exactly(data: Raw) -> Any:
    text = str(data, "utf-8")
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_no_constant)
        if _SURROGATE.search(text) is None:
            return value
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return json.loads(whole.decode("utf-16", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number that is too large")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def encode(message: object) -> bytes:
    """Write one JSON value without line breaks. Raises TypeError for what is no JSON.

    NaN and the infinities are the exception: orjson writes them as null.
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        return _encode_exactly(message)


def written(value: object) -> Written:
    """Write a value once, to be put into many messages. Raises TypeError for what is no JSON."""
    return orjson.Fragment(encode(value))


def _encode_exactly(message: object) -> bytes:
    try:
        try:
            text = _text(message)
        except RecursionError:
            text = "".join(_piece_by_piece(message))
    except ValueError as error:
        raise TypeError(f"not JSON: {error}") from None
    return text.encode("utf-8", "replace")


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_read_again)


def _piece_by_piece(message: object) -> Iterator[str]:
    """For what nests as deeply as it can be read, which is deeper than the libraries write."""
    opened: list[tuple[Iterator[tuple[str, object]], str]] = [(iter((("", message),)), "")]
    while opened:
        entries, end = opened[-1]
        entry = next(entries, None)
        if entry is None:
            opened.pop()
            yield end
            continue
        before, value = entry
        if isinstance(value, dict):
            yield before + "{"
            opened.append((_fields(cast("dict[str, object]", value)), "}"))
        elif isinstance(value, list):
            yield before + "["
            opened.append((zip(_commas(), cast("list[object]", value), strict=False), "]"))
        else:
            yield before + _text(value)


def _fields(value: dict[str, object]) -> Iterator[tuple[str, object]]:
    for comma, (key, field) in zip(_commas(), value.items(), strict=False):
        yield f"{comma}{_text(key)}:", field


def _commas() -> Iterator[str]:
    return itertools.chain(("",), itertools.repeat(","))


def _read_again(value: object) -> Any:
    if isinstance(value, orjson.Fragment):
        return decode_exactly(orjson.dumps(value))
    raise TypeError(f"{type(value).__name__} is no JSON")
