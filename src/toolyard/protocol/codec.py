"""JSON encoding and decoding: orjson where it is exact, the standard library where it is not."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeAlias, cast

import orjson

from toolyard.protocol.framing import LARGE_MESSAGE_BYTES, MessageBytes
from toolyard.results.json_size import is_large

__all__ = [
    "MAX_INTEGER_DIGITS",
    "JsonFragment",
    "decode",
    "encode",
    "encode_fragment",
    "encode_large_members",
    "iter_encoded_pieces",
    "may_contain_long_number",
    "parse_integer",
]

JsonFragment: TypeAlias = orjson.Fragment
"""An encoded JSON value that ``encode`` inserts as it is."""

MAX_INTEGER_DIGITS = 640
"""Maximum number of digits of an integer. The time to read and to write one is quadratic: for the 4,300
digits that Python reads by default, it is more than a millisecond."""
_DIGIT_MASK_TABLE = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
"""Translation table that maps every digit to "0" and every other byte to a space."""
_LONG_NUMBER_MASK = b"0" * 19
"""As many digits as the shortest integer that may exceed 64 bits."""
_DIGIT_SAMPLE_STEP = 6
_SCAN_WINDOW_BYTES = 64 * 1024
_MAX_INSPECTED_VALUES = 1000
_PIECE_CHARS = 250_000
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def decode(
    data: MessageBytes,
    *,
    large_message_bytes: int = LARGE_MESSAGE_BYTES,
    max_inspected_values: int = _MAX_INSPECTED_VALUES,
) -> Any:
    """Decode one JSON value; raise ValueError for invalid JSON.

    orjson turns integers beyond 64 bits into floats, so a text that may contain one is decoded by the
    standard library, which keeps them exact. A lone surrogate escape, which JSON allows and orjson refuses,
    is decoded with a replacement character.
    """
    # The bytes of a small message are scanned for long numbers before decoding. For a large one that scan is
    # expensive, so it is decoded first and scanned only if its values leave a doubt.
    large = len(data) > large_message_bytes
    if large or not may_contain_long_number(data):
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            if b"\\u" not in bytes(data) and not (large and may_contain_long_number(data)):
                raise ValueError("not valid JSON") from None
        else:
            if not large or _is_exact(value, max_inspected_values) or not may_contain_long_number(data):
                return value
            del value  # Free it first: it is large and about to be built again.
    return decode_exactly(data)


def _is_exact(value: Any, max_values: int) -> bool:
    """Return True if the value consists of few parts, none of them a float that may have been a long integer.

    Most large messages are one long text. Inspecting the decoded values is much faster than scanning its
    bytes.
    """
    remaining, stack = max_values, [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            parts = cast("dict[str, Any]", value).values()
        elif isinstance(value, list):
            parts = cast("list[Any]", value)
        elif isinstance(value, float) and abs(value) >= 2**63:
            return False
        else:
            continue
        remaining -= len(parts)
        if remaining < 0:
            return False
        stack.extend(parts)
    return True


def may_contain_long_number(data: MessageBytes, window_bytes: int = _SCAN_WINDOW_BYTES) -> bool:
    """Return True if the data has 19 digits in a row, in a number or in a string."""
    if len(data) <= window_bytes:
        return _LONG_NUMBER_MASK in bytes(data).translate(_DIGIT_MASK_TABLE)
    # In windows that fit into the CPU cache; each overlaps the next by the length of a long number less one.
    view = memoryview(data)
    return any(
        _window_may_contain_long_number(
            bytearray(view[start : start + window_bytes + len(_LONG_NUMBER_MASK) - 1])
        )
        for start in range(0, len(view), window_bytes)
    )


def _window_may_contain_long_number(window: bytearray) -> bool:
    # Sample every sixth byte first: 19 digits in a row show up as at least three digits in a row in the
    # sample, which is rare otherwise. Only then translate and search the whole window.
    sample_mask = _LONG_NUMBER_MASK[: len(_LONG_NUMBER_MASK) // _DIGIT_SAMPLE_STEP]
    return sample_mask in window[::_DIGIT_SAMPLE_STEP].translate(
        _DIGIT_MASK_TABLE
    ) and _LONG_NUMBER_MASK in window.translate(_DIGIT_MASK_TABLE)


def decode_exactly(data: MessageBytes) -> Any:
    """Decode with the standard library: exact integers, and lone surrogates replaced. Raise ValueError."""
    text = str(data, "utf-8")
    try:
        value = json.loads(
            text, parse_int=parse_integer, parse_float=_parse_finite_float, parse_constant=_reject_constant
        )
        if _SURROGATE_ESCAPE.search(text) is None:
            return value
        # UTF-16 joins surrogate pairs that were written as two escapes, and replaces lone ones.
        utf16 = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return json.loads(utf16.decode("utf-16", "replace"))
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def parse_integer(text: str) -> int:
    """Return the integer that the text consists of. Raise ValueError if it has too many digits."""
    if len(text) > MAX_INTEGER_DIGITS + text.startswith("-"):
        raise ValueError("an integer has too many digits")
    return int(text)


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def encode(message: object) -> bytes:
    """Encode one JSON value without line breaks. Raise TypeError for values that JSON cannot represent.

    NaN and the infinities are an exception: orjson writes them as null.
    """
    try:
        return orjson.dumps(message)
    except TypeError:
        return _encode_exactly(message)


def encode_fragment(value: object) -> JsonFragment:
    """Encode a value once, for use in many messages. Raise TypeError like ``encode``."""
    # Copied, because the encoder returns bytes inside a buffer of up to four times their size.
    return orjson.Fragment(bytes(memoryview(encode(value))))


async def encode_large_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members with large ones encoded, in a thread and in short steps. Raise TypeError like
    ``encode``.

    A single call of the libraries would hold the GIL, and with it the event loop, for up to a second.
    """
    return {
        key: await asyncio.to_thread(_encode_in_steps, value) if is_large(value) else value
        for key, value in members.items()
    }


def _encode_in_steps(value: object) -> JsonFragment:
    try:
        return orjson.Fragment(
            b"".join(piece.encode("utf-8", "replace") for piece in iter_encoded_pieces(value))
        )
    except ValueError as error:
        raise TypeError(f"not JSON serializable: {error}") from None


def _encode_exactly(message: object) -> bytes:
    try:
        try:
            text = _dump_compact(message)
        except RecursionError:
            text = "".join(iter_encoded_pieces(message))
    except ValueError as error:
        raise TypeError(f"not JSON serializable: {error}") from None
    return text.encode("utf-8", "replace")


def _dump_compact(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_decode_fragment
    )


def iter_encoded_pieces(message: object) -> Iterator[str]:
    """Encode iteratively: values nested deeper than the libraries can write but still can read, and long ones
    in short steps."""
    stack: list[tuple[Iterator[tuple[str, object]], str]] = [(iter((("", message),)), "")]
    while stack:
        entries, end = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            yield end
            continue
        prefix, value = entry
        if isinstance(value, dict):
            yield prefix + "{"
            stack.append((_iter_members(cast("dict[str, object]", value)), "}"))
        elif isinstance(value, list):
            yield prefix + "["
            stack.append((zip(_iter_separators(), cast("list[object]", value), strict=False), "]"))
        elif isinstance(value, str) and len(value) > _PIECE_CHARS:
            yield prefix + '"'
            for start in range(0, len(value), _PIECE_CHARS):
                yield _dump_compact(value[start : start + _PIECE_CHARS])[1:-1]
            yield '"'
        else:
            yield prefix + _dump_compact(value)


def _iter_members(value: dict[str, object]) -> Iterator[tuple[str, object]]:
    for comma, (key, field) in zip(_iter_separators(), value.items(), strict=False):
        yield f"{comma}{_dump_compact(key)}:", field


def _iter_separators() -> Iterator[str]:
    return itertools.chain(("",), itertools.repeat(","))


def _decode_fragment(value: object) -> Any:
    if isinstance(value, orjson.Fragment):
        return decode_exactly(orjson.dumps(value))
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
