"""Serialization of values as JSON for models, in short steps for large values.

``json.dumps`` writes a value in one call that holds the GIL; for a large value no other thread, including the
event loop, would run until it ends. Large values are therefore written in many short calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from toolyard.results.json_size import is_large
from toolyard.results.truncation import truncate_middle

__all__ = ["to_readable_json"]

_PIECE_CHARS = 250_000
_TOO_DEEP_TEXT = "(JSON that is nested too deeply to be shown)"
_MAX_DEPTH = 900


def to_readable_json(value: object, max_chars: int | None = None) -> str:
    """Return the value as one line of JSON with unescaped Unicode, and a string unchanged. Never raises.

    With ``max_chars``, the text of a large value ends soon after so many characters, and each string in it is
    truncated to them, so that the rest of it costs nothing.
    """
    if isinstance(value, str):
        return value
    if is_large(value):
        return "".join(_take_pieces(_dump_in_pieces(value, max_chars), max_chars))
    try:
        return _dumps(value)
    except RecursionError:
        return _TOO_DEEP_TEXT
    except (TypeError, ValueError) as error:
        return f"(not JSON: {error})"


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _dump_in_pieces(value: object, max_string_chars: int | None) -> Iterator[str]:
    """Yield the output of ``json.dumps`` in pieces, without recursion."""
    # A stack of iterators over open objects and arrays, and the closing bracket of each. The iterators yield
    # the text before a value (comma and key) with the value.
    stack: list[Iterator[tuple[str, object]]] = [iter((("", value),))]
    ends = [""]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            yield ends.pop()
            continue
        prefix, node = entry
        yield prefix
        if isinstance(node, str):
            yield from _dump_text(
                node if max_string_chars is None else truncate_middle(node, max_string_chars, None)
            )
        elif isinstance(node, dict | list) and len(stack) > _MAX_DEPTH:
            yield json.dumps(_TOO_DEEP_TEXT)
        elif isinstance(node, dict):
            yield "{"
            ends.append("}")
            stack.append(_iterate_members(cast("dict[str, Any]", node)))
        elif isinstance(node, list):
            yield "["
            ends.append("]")
            stack.append(_iterate_items(cast("list[object]", node)))
        else:
            yield _dumps(node)


def _take_pieces(pieces: Iterator[str], max_chars: int | None) -> Iterator[str]:
    written = 0
    for piece in pieces:
        yield piece
        written += len(piece)
        if max_chars is not None and written > 2 * max_chars:
            return


def _iterate_members(members: dict[str, Any]) -> Iterator[tuple[str, object]]:
    comma = ""
    for name, value in members.items():
        yield f"{comma}{_dumps(name)}: ", value
        comma = ", "


def _iterate_items(items: list[object]) -> Iterator[tuple[str, object]]:
    comma = ""
    for value in items:
        yield comma, value
        comma = ", "


def _dump_text(text: str) -> Iterator[str]:
    yield '"'
    for start in range(0, len(text), _PIECE_CHARS):
        yield _dumps(text[start : start + _PIECE_CHARS])[1:-1]
    yield '"'
