"""JSON as bytes. Fast where it can be, exact where it must be."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TypeAlias, cast

import orjson

from toolyard.protocol.byte_buffer import LARGE_MESSAGE_BYTES, MessageBytes

__all__ = ["JsonFragment", "decode", "encode", "encode_fragment"]

JsonFragment: TypeAlias = orjson.Fragment
"""A JSON value that is written already; it may stand wherever ``encode`` takes one."""

_DIGIT_MASK_TABLE = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER_MASK = b"0" * 19
_DIGIT_SAMPLE_STEP = 6
_SCAN_WINDOW_BYTES = 64 * 1024
_MAX_INSPECTED_VALUES = 1000
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(data: MessageBytes) -> Any:
    """Read one JSON value; raises ValueError where there is none.

    orjson turns integers beyond 64 bits into floats, so a text that may hold one is read by the
    standard library, which keeps them exact. What orjson refuses and JSON allows (a lone surrogate
    escape) is read with the broken character replaced.
    """
    large = len(data) > LARGE_MESSAGE_BYTES
    if large or not may_contain_long_number(data):
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            if b"\\u" not in bytes(data) and not (large and may_contain_long_number(data)):
                raise ValueError("not JSON") from None
        else:
            if not large or _is_exact(value) or not may_contain_long_number(data):
                return value
            del value  # It is large, and about to be made once more.
    return decode_exactly(data)


def _is_exact(value: Any) -> bool:
    """Whether these are few values, and none of them a float that was a longer integer.

    Most large messages are one long text. To look at what was read spares a way through all of its memory.
    """
    left, waiting = _MAX_INSPECTED_VALUES, [value]
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


def may_contain_long_number(data: MessageBytes) -> bool:
    if len(data) <= _SCAN_WINDOW_BYTES:
        return _LONG_NUMBER_MASK in bytes(data).translate(_DIGIT_MASK_TABLE)
    # In pieces that stay in the processor's cache; each overlaps the next by what a number could straddle.
    view = memoryview(data)
    return any(
        _window_may_contain_long_number(
            bytearray(view[start : start + _SCAN_WINDOW_BYTES + len(_LONG_NUMBER_MASK) - 1])
        )
        for start in range(0, len(view), _SCAN_WINDOW_BYTES)
    )


def _window_may_contain_long_number(piece: bytearray) -> bool:
    # So many digits in a row are met several times even in long steps, which little else is.
    met = _LONG_NUMBER_MASK[: len(_LONG_NUMBER_MASK) // _DIGIT_SAMPLE_STEP]
    return met in piece[::_DIGIT_SAMPLE_STEP].translate(
        _DIGIT_MASK_TABLE
    ) and _LONG_NUMBER_MASK in piece.translate(_DIGIT_MASK_TABLE)


def decode_exactly(data: MessageBytes) -> Any:
    text = str(data, "utf-8")
    try:
        value = json.loads(text, parse_float=_parse_finite_float, parse_constant=_reject_constant)
        if _SURROGATE_ESCAPE.search(text) is None:
            return value
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return json.loads(whole.decode("utf-16", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number that is too large")
    return number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def encode(message: object) -> bytes:
    """Write one JSON value without line breaks. Raises TypeError for what is no JSON.

    NaN and the infinities are the exception: orjson writes them as null.
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        return _encode_exactly(message)


def encode_fragment(value: object) -> JsonFragment:
    """Write a value once, to be put into many messages. Raises TypeError for what is no JSON."""
    return orjson.Fragment(encode(value))


def _encode_exactly(message: object) -> bytes:
    try:
        try:
            text = _dump_compact(message)
        except RecursionError:
            text = "".join(_iter_encoded_pieces(message))
    except ValueError as error:
        raise TypeError(f"not JSON: {error}") from None
    return text.encode("utf-8", "replace")


def _dump_compact(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_decode_fragment
    )


def _iter_encoded_pieces(message: object) -> Iterator[str]:
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
            opened.append((_iter_members(cast("dict[str, object]", value)), "}"))
        elif isinstance(value, list):
            yield before + "["
            opened.append((zip(_iter_separators(), cast("list[object]", value), strict=False), "]"))
        else:
            yield before + _dump_compact(value)


def _iter_members(value: dict[str, object]) -> Iterator[tuple[str, object]]:
    for comma, (key, field) in zip(_iter_separators(), value.items(), strict=False):
        yield f"{comma}{_dump_compact(key)}:", field


def _iter_separators() -> Iterator[str]:
    return itertools.chain(("",), itertools.repeat(","))


def _decode_fragment(value: object) -> Any:
    if isinstance(value, orjson.Fragment):
        return decode_exactly(orjson.dumps(value))
    raise TypeError(f"{type(value).__name__} is no JSON")
