"""A small language for a place in JSON, of which no path costs more than it finds.

    $.items[0].name      a key, an element; the ``$.`` may be left out
    $["odd key"].x       a key that is no plain word
    $.items[-1]          from the end
    $.items[2:5]         some elements
    $.items[*].name      every element of an array, or every value of an object

There are no filters, no scripts and no search at any depth.
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
    """The path cannot be read; the words say where."""


class PathNotFound(LookupError):
    """The JSON has no such place; the words say how far the path leads, and what is there."""


@dataclass(frozen=True, slots=True)
class _AllItems:
    pass


_Step: TypeAlias = str | int | slice | _AllItems


def find_at_path(value: object, path: str) -> object:
    """What stands at the path: one value, or a list of them where a step may find several.

    Raises PathError, or Missing where a path to one value leads nowhere. Values that lack a step after one
    that finds several are left out.
    """
    found: list[object] = [value]
    several, done = False, "$"
    for step, written in list(_parse_steps(path)):
        reached = [inner for each in found for inner in _apply_step(each, step)]
        if not reached and not several and not isinstance(step, _AllItems | slice):
            raise PathNotFound(f"{done} has no {written}: {_describe_value(found[0])}")
        if len(reached) > _MAX_FOUND_VALUES:
            raise PathNotFound(f"{done}{written} finds more than {_MAX_FOUND_VALUES:,} values")
        several = several or isinstance(step, _AllItems | slice)
        found, done = reached, done + written
    return found if several else found[0]


def _parse_steps(path: str) -> Iterable[tuple[_Step, str]]:
    if len(path) > _MAX_PATH_CHARS:
        raise PathSyntaxError(f"the path has {len(path):,} characters, more than {_MAX_PATH_CHARS:,}")
    text = path.strip()
    at = 1 if text.startswith("$") else 0
    while at < len(text):
        found = _STEP_PATTERN.match(text, at)
        if found is None:
            raise PathSyntaxError(f"the path cannot be read from {text[at : at + 20]!r} on")
        yield _parse_step(found), found[0]
        at = found.end()


def _parse_step(found: re.Match[str]) -> _Step:
    if found["key"] is not None:
        return found["key"]
    if found["at"] is not None:
        return int(found["at"])
    if found["all"] or found["each"]:
        return _AllItems()
    quoted = found["quoted"]
    if quoted is not None:
        if quoted.startswith("'"):
            return quoted[1:-1]
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise PathSyntaxError(f"the key {quoted} cannot be read") from None
    start, end = found["start"], found["end"]
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
            json.dumps(str(key), ensure_ascii=False)[:40] for key in list(cast("dict[str, object]", value))
        ]
        shown = ", ".join(keys[:10]) + (", …" if len(keys) > 10 else "")
        return f"it is an object with the keys {shown}" if keys else "it is an empty object"
    if isinstance(value, list):
        return f"it is an array of {len(cast('list[object]', value)):,}"
    return "it is no object and no array"
