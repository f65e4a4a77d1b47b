"""A change of a definition, so that a person sees what is different and nothing else."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import cast

from toolyard.model.tool import JsonObject

__all__ = ["differences", "text_difference"]

_VALUE = 200
_MOST = 200
_DEPTH = 60


def differences(before: JsonObject, after: JsonObject) -> list[str]:
    """One line for each place that differs; for texts of several lines, the lines that do."""
    lines: list[str] = []
    for line in _walk(before, after, "", 0):
        if len(lines) >= _MOST:
            lines.append("… and more")
            break
        lines.append(line)
    return lines


def text_difference(before: str, after: str) -> list[str]:
    """The lines that were taken out and put in, with one of each around them."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return [_cut(line) for line in found if not line.startswith(("---", "+++", "@@"))]


def _walk(before: object, after: object, place: str, depth: int) -> Iterator[str]:
    if _written(before) == _written(after):
        # As JSON, where 1 is not true.
        return
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        yield f"~ {place}:"
        yield from (f"    {line}" for line in text_difference(before, after))
    elif depth < _DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _keys(cast("JsonObject", before), cast("JsonObject", after), place, depth)
    else:
        yield f"- {place}: {_shown(cast('object', before))}"
        yield f"+ {place}: {_shown(cast('object', after))}"


def _keys(before: JsonObject, after: JsonObject, place: str, depth: int) -> Iterator[str]:
    for key in sorted({*before, *after}):
        where = f"{place}.{key}" if place else key
        if key not in before:
            yield f"+ {where}: {_shown(after[key])}"
        elif key not in after:
            yield f"- {where}: {_shown(before[key])}"
        else:
            yield from _walk(before[key], after[key], where, depth + 1)


def _shown(value: object) -> str:
    return _cut(_written(value))


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _cut(line: str) -> str:
    printable = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return printable if len(printable) <= _VALUE else f"{printable[:_VALUE]}… ({len(printable):,} characters)"
