"""What models and servers write, made fit for a database and for other servers."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

import orjson

__all__ = ["is_storable_json", "parse_tool_arguments", "sanitize_text"]


def sanitize_text(text: str) -> str:
    """The same text with a mark in place of what no database takes: NUL, and half characters."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode(errors="replace").decode()


def is_storable_json(value: object) -> bool:
    """Whether a value can be stored and sent as it is: no numbers over 64 bits, no half characters, and not
    nested deeper than anybody reads."""
    try:
        # Room for what is put around it.
        orjson.dumps([[[[value]]]])
    except orjson.JSONEncodeError:
        return False
    return True


def parse_tool_arguments(arguments: object) -> dict[str, Any] | None:
    """The arguments that a model wrote, as an object that can be stored and sent; None where they are none.

    Nothing at all is an object without entries: models leave it out for tools that take nothing.
    """
    if arguments is None or arguments == "":
        return {}
    found: object = arguments
    if isinstance(arguments, str):
        try:
            found = json.loads(arguments, parse_constant=_reject_json_constant)
        except (ValueError, RecursionError):
            return None
    if not isinstance(found, dict):
        return None
    made = cast("dict[str, Any]", found)
    return made if is_storable_json(made) else None


def _reject_json_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
