"""JSON as bytes. Fast where it can be, exact where it must be."""

from __future__ import annotations

import json
from typing import Any

import orjson

__all__ = ["decode", "encode"]

_DIGITS = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19


def decode(data: bytes | bytearray) -> Any:
    """Read one JSON value; raises ValueError where there is none.

    orjson turns integers beyond 64 bits into floats, so a text that may hold one is read by the
    standard library, which keeps them exact. What orjson refuses and JSON allows (a lone surrogate
    escape) is read with the broken character replaced.
    """
    if _LONG_NUMBER in data.translate(_DIGITS):
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _decode_leniently(data)


def _decode_leniently(data: bytes | bytearray) -> Any:
    text = data.decode("utf-8", "replace")
    if "\\u" not in text:
        raise ValueError("not JSON")
    try:
        value = json.loads(text)
        whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return json.loads(whole.decode("utf-16", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode(message: object) -> bytes:
    """Write one JSON value without line breaks. Raises TypeError for what is no JSON."""
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
