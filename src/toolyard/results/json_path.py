"""A small subset of JSONPath whose cost is proportional to the number of matched values.

    $.items[0].name      a key, an element; the ``$.`` may be omitted
    $["odd key"].x       a key that is not a plain word
    $.items[-1]          an element counted from the end
    $.items[2:5]         a slice of elements
    $.items[*].name      all elements of an array, or all values of an object

Filters, scripts and recursive descent are not supported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

__all__ = ["PathNotFound", "PathSyntaxError", "find_at_path"]

_MAX_PATH_CHARS = 1_000
_MAX_FOUND_VALUES = 100_000
_MAX_SHOWN_KEYS, _MAX_SHOWN_KEY_CHARS = 10, 40
_STEP_PATTERN = re.compile(
    r"""\.?(?P<key>[^\W\d][\w-]*)
    |\.?\[(?P<all>\*)\]
    |\.(?P<each>\*)
    |\.?\[(?P<start>-?\d{1,9})?:(?P<end>-?\d{1,9})?\]
    |\.?\[(?P<at>-?\d{1,9})\]
    |\.?\[(?P<quoted>"(?:[^"\\]|\\.)*"|'[^'\\]*')\]
    """,
    re.VERBOSE,
)


class PathSyntaxError(ValueError):
    """Raised for an invalid path. The message says where the error is."""


class PathNotFound(LookupError):
    """Raised if a path leads to no value. The message says how far it leads, and what is there."""


@dataclass(frozen=True, slots=True)
class _AllItems:
    pass


_Step: TypeAlias = str | int | slice | _AllItems


def find_at_path(value: object, path: str) -> object:
    """Return the value at a path, or a list of values if the path has a wildcard or a slice.

    Raise PathSyntaxError for an invalid path, and PathNotFound if a path to one value leads nowhere. After a
    wildcard or slice, values without the next step are skipped.
    """
    values: list[object] = [value]
    is_multiple, walked = False, "$"
    for step, step_text in list(_parse_steps(path)):
        matches = [inner for each in values for inner in _apply_step(each, step)]
        if not matches and not is_multiple and not isinstance(step, _AllItems | slice):
            raise PathNotFound(f"{walked} has no {step_text}: {_describe_value(values[0])}")
        if len(matches) > _MAX_FOUND_VALUES:
            raise PathNotFound(f"{walked}{step_text} matches more than {_MAX_FOUND_VALUES:,} values")
        is_multiple = is_multiple or isinstance(step, _AllItems | slice)
        values, walked = matches, walked + step_text
    return values if is_multiple else values[0]


def _parse_steps(path: str) -> Iterable[tuple[_Step, str]]:
    if len(path) > _MAX_PATH_CHARS:
        raise PathSyntaxError(f"the path has {len(path):,} characters, more than {_MAX_PATH_CHARS:,}")
    text = path.strip()
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        match = _STEP_PATTERN.match(text, position)
        if match is None:
            raise PathSyntaxError(f"invalid path at {text[position : position + 20]!r}")
        yield _parse_step(match), match[0]
        position = match.end()


def _parse_step(match: re.Match[str]) -> _Step:
    if match["key"] is not None:
        return match["key"]
    if match["at"] is not None:
        return int(match["at"])
    if match["all"] or match["each"]:
        return _AllItems()
    quoted = match["quoted"]
    if quoted is not None:
        if quoted.startswith("'"):
            return quoted[1:-1]
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise PathSyntaxError(f"the key {quoted} is not a valid JSON string") from None
    start, end = match["start"], match["end"]
    return slice(int(start) if start else None, int(end) if end else None)


def _apply_step(value: object, step: _Step) -> list[object]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if isinstance(step, _AllItems):
            return list(fields.values())
        return [fields[step]] if isinstance(step, str) and step in fields else []
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    if isinstance(step, _AllItems):
        return list(items)
    if isinstance(step, slice):
        return items[step]
    return [items[step]] if isinstance(step, int) and -len(items) <= step < len(items) else []


def _describe_value(value: object) -> str:
    if isinstance(value, dict):
        keys = [
            json.dumps(str(key), ensure_ascii=False)[:_MAX_SHOWN_KEY_CHARS]
            for key in list(cast("dict[str, object]", value))
        ]
        shown = ", ".join(keys[:_MAX_SHOWN_KEYS]) + (", …" if len(keys) > _MAX_SHOWN_KEYS else "")
        return f"it is an object with the keys {shown}" if keys else "it is an empty object"
    if isinstance(value, list):
        return f"it is an array of {len(cast('list[object]', value)):,}"
    return "it is neither an object nor an array"
