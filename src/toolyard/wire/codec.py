"""JSON as bytes. Fast where it can be, exact where it must be."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

__all__ = ["decode", "encode"]

_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19
_PIECE = 64 * 1024
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(data: bytes | bytearray) -> Any:
    """Read one JSON value; raises ValueError where there is none.

    orjson turns integers beyond 64 bits into floats, so a text that may hold one is read by the
    standard library, which keeps them exact. What orjson refuses and JSON allows (a lone surrogate
    escape) is read with the broken character replaced.
    """
    if not _may_hold_long_number(data):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            if b"\\u" not in data:
                raise ValueError("not JSON") from None
    return _decode_exactly(data)


def _may_hold_long_number(data: bytes | bytearray) -> bool:
    if len(data) <= _PIECE:
        return _LONG_NUMBER in data.translate(_DIGITS)
    # In pieces that stay in the processor's cache; each overlaps the next by what a number could straddle.
    return any(
        _LONG_NUMBER in data[start : start + _PIECE + len(_LONG_NUMBER) - 1].translate(_DIGITS)
        for start in range(0, len(data), _PIECE)
    )


def _decode_exactly(data: bytes | bytearray) -> Any:
    text = data.decode()
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


def _encode_exactly(message: object) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise TypeError(f"not JSON: {error}") from None
    return text.encode("utf-8", "replace")
