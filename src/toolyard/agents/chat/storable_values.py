"""Text and JSON of models and servers in a form that is safe to store and to send on."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

import orjson

__all__ = ["is_storable_json", "parse_tool_arguments", "sanitize_text"]


def sanitize_text(text: str) -> str:
    """Replace characters that databases reject, NUL and lone surrogates, with a replacement character."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode(errors="replace").decode()


def is_storable_json(value: object) -> bool:
    """Return whether a value can be stored and sent unchanged.

    False for integers over 64 bits, lone surrogates and excessive nesting.
    """
    try:
        # Events wrap the value in further levels, which count towards orjson's nesting limit.
        orjson.dumps([[[[value]]]])
    except orjson.JSONEncodeError:
        return False
    return True


def parse_tool_arguments(arguments: object) -> dict[str, Any] | None:
    """Return a model's arguments as a storable object, or None if they are not one.

    Missing arguments are an empty object: models omit them for tools without parameters.
    """
    if arguments is None or arguments == "":
        return {}
    parsed: object = arguments
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments, parse_constant=_reject_json_constant)
        except (ValueError, RecursionError):
            return None
    if not isinstance(parsed, dict):
        return None
    result = cast("dict[str, Any]", parsed)
    return result if is_storable_json(result) else None


def _reject_json_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
