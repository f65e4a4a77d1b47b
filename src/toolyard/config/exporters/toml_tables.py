"""One table of a TOML file that a person wrote, set or taken out where it stands."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import cast

from toolyard.config.exporters.errors import refuse_edit
from toolyard.config.sources.json_document import JsonValue, format_path

__all__ = ["format_table", "remove_table", "set_table"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE_WITH_ENDING = re.compile(r"[^\n]*+\n|[^\n]++")


def format_table(path: Sequence[str], entry: Mapping[str, JsonValue]) -> str:
    """A table with its values: texts, truth values, lists of texts, and flat tables of texts."""
    lines = [f"[{'.'.join(map(_format_key, path))}]"]
    return "\n".join(
        [*lines, *(f"{_format_key(key)} = {_format_toml_value(value)}" for key, value in entry.items())]
    )


def set_table(text: str, path: Sequence[str], entry: Mapping[str, JsonValue]) -> str:
    """The text with a table, in the place of the one of that name, else at the end.

    What comes out is to be read again before it is believed: some ways to write TOML cannot be added to.
    Raises EditRefused where a comment would be lost.
    """
    lines = _LINE_WITH_ENDING.findall(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    new = [line + newline for line in format_table(path, entry).split("\n")]
    there = _find_sections(lines, path)
    if there:
        first = there[0][0]
        kept = _remove_sections(lines, there, path)
        return "".join([*kept[:first], *new, *kept[first:]])
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    gap = [newline] if lines and lines[-1].strip() else []
    return "".join([*lines, *gap, *new])


def remove_table(text: str, path: Sequence[str]) -> str:
    """The text without a table and the tables below it. Raises EditRefused as ``put_table``, and where it is
    written in another way than as a table of its own."""
    lines = _LINE_WITH_ENDING.findall(text)
    there = _find_sections(lines, path)
    if not there:
        refuse_edit(
            "it is written in a way that cannot be taken out by itself", path=format_path(tuple(path))
        )
    return "".join(_remove_sections(lines, there, path))


def _find_sections(lines: Sequence[str], path: Sequence[str]) -> list[tuple[int, int]]:
    """Where the table and those below it begin and end. Blank lines and comments at the end of a table are
    taken for the beginning of what follows."""
    heads = [
        (number, way) for number, line in enumerate(lines) if (way := _parse_table_header(line)) is not None
    ]
    ends = [*(number for number, _ in heads), len(lines)][1:]
    found: list[tuple[int, int]] = []
    for (begin, way), end in zip(heads, ends, strict=False):
        if way[: len(path)] == list(path):
            while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
                end -= 1
            found.append((begin, end))
    return found


def _remove_sections(
    lines: Sequence[str], spans: Sequence[tuple[int, int]], path: Sequence[str]
) -> list[str]:
    gone = {number for begin, end in spans for number in range(begin, end)}
    if any("#" in lines[number] for number in gone):
        refuse_edit("there may be comments in what would be replaced", path=format_path(tuple(path)))
    return [line for number, line in enumerate(lines) if number not in gone]


def _parse_table_header(line: str) -> list[str] | None:
    """The name of the table that a line begins, step by step; None: it begins none."""
    if not line.lstrip().startswith("["):
        return None
    try:
        found = cast("JsonValue", tomllib.loads(line))
    except tomllib.TOMLDecodeError:
        return None
    way: list[str] = []
    while isinstance(found, dict) and found:
        step, found = next(iter(found.items()))
        way.append(step)
    # An item of a list of tables is no table of that name.
    return [*way, ""] if isinstance(found, list) else way


def _format_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _format_toml_value(value: JsonValue) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{ "
            f"{', '.join(f'{_format_key(key)} = {_format_toml_value(one)}' for key, one in value.items())} }}"
        )
    return json.dumps(value, ensure_ascii=False)
