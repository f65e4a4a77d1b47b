"""JSON that a model can read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

__all__ = ["is_large", "to_readable_json"]

_MANY_VALUES = 10_000
_LONG_TEXT = 1_000_000
_PIECE = 250_000
_TOO_DEEP = "(JSON that is nested too deeply to be shown)"
_MAX_DEPTH = 900


def to_readable_json(value: object) -> str:
    """The value as JSON on one line, unicode as it is; a text as it stands. Never raises."""
    if isinstance(value, str):
        return value
    if is_large(value):
        # The library writes a value in one call, during which no other thread runs.
        return "".join(_pieces(value))
    try:
        return _dumps(value)
    except RecursionError:
        return _TOO_DEEP
    except (TypeError, ValueError) as error:
        return f"(not JSON: {error})"


def is_large(value: object) -> bool:
    """Return whether a JSON value has so many parts, or so long texts, that handling it takes a while."""
    values, characters, waiting = 0, 0, [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            characters += len(found)
        elif isinstance(found, dict):
            members = cast("dict[str, object]", found)
            values += len(members)
            characters += sum(map(len, members)) if len(members) < _MANY_VALUES else 0
            waiting.extend(members.values() if len(members) < _MANY_VALUES else ())
        elif isinstance(found, list):
            items = cast("list[object]", found)
            values += len(items)
            waiting.extend(items if len(items) < _MANY_VALUES else ())
        if values >= _MANY_VALUES or characters >= _LONG_TEXT:
            return True
    return False


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _pieces(value: object) -> Iterator[str]:
    """Write a value of JSON types as ``json.dumps`` does, in many short calls."""
    waiting: list[Iterator[tuple[str, object]]] = [iter((("", value),))]
    ends = [""]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            yield ends.pop()
            continue
        before, found = entry
        yield before
        if isinstance(found, str):
            yield from _text(found)
        elif isinstance(found, dict | list) and len(waiting) > _MAX_DEPTH:
            yield json.dumps(_TOO_DEEP)
        elif isinstance(found, dict):
            yield "{"
            ends.append("}")
            waiting.append(_members(cast("dict[str, Any]", found)))
        elif isinstance(found, list):
            yield "["
            ends.append("]")
            waiting.append(_items(cast("list[object]", found)))
        else:
            yield _dumps(found)


def _members(value: dict[str, Any]) -> Iterator[tuple[str, object]]:
    comma = ""
    for name, found in value.items():
        yield f"{comma}{_dumps(name)}: ", found
        comma = ", "


def _items(value: list[object]) -> Iterator[tuple[str, object]]:
    comma = ""
    for found in value:
        yield comma, found
        comma = ", "


def _text(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _PIECE):
        yield _dumps(text[start : start + _PIECE])[1:-1]
    yield '"'
