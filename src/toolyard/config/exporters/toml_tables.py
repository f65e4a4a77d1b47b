"""Set or remove one table in the text of a TOML file, preserving the rest of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import cast

from toolyard.config.exporters.errors import refuse_edit
from toolyard.config.sources.json_document import JsonValue, format_path

__all__ = ["format_table", "remove_table", "set_flag", "set_table"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LINE_WITH_ENDING = re.compile(r"[^\n]*+\n|[^\n]++")


def format_table(path: Sequence[str], entry: Mapping[str, JsonValue]) -> str:
    """Format a table. Values may be strings, booleans, lists of strings, and flat tables of strings."""
    lines = [f"[{'.'.join(map(_format_key, path))}]"]
    return "\n".join(
        [*lines, *(f"{_format_key(key)} = {_format_toml_value(value)}" for key, value in entry.items())]
    )


def set_table(text: str, path: Sequence[str], entry: Mapping[str, JsonValue]) -> str:
    """Return the text with a table, in place of the existing one or else at the end.

    The caller must parse the result and compare it, because some ways to write TOML cannot be extended like
    this. Raises EditRefused if a comment would be lost.
    """
    lines = _LINE_WITH_ENDING.findall(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    new_lines = [line + newline for line in format_table(path, entry).split("\n")]
    spans = _find_sections(lines, path)
    if spans:
        first = spans[0][0]
        remaining = _remove_sections(lines, spans, path)
        return "".join([*remaining[:first], *new_lines, *remaining[first:]])
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    gap = [newline] if lines and lines[-1].strip() else []
    return "".join([*lines, *gap, *new_lines])


def remove_table(text: str, path: Sequence[str]) -> str:
    """Return the text without a table and its sub-tables.

    Raises EditRefused if a comment would be lost, or the table is not written as a ``[table]`` section.
    """
    lines = _LINE_WITH_ENDING.findall(text)
    spans = _find_sections(lines, path)
    if not spans:
        refuse_edit(
            "it is not a separate [table], so it cannot be removed automatically",
            path=format_path(tuple(path)),
        )
    return "".join(_remove_sections(lines, spans, path))


def set_flag(text: str, path: Sequence[str], value: bool | None) -> str:
    """Return the text with a boolean at ``path``, in the lines of its table; None removes it.

    The caller must parse the result and compare it. Raises EditRefused if the table is not a section.
    """
    *table, key = path
    lines = _LINE_WITH_ENDING.findall(text)
    header = next((n for n, line in enumerate(lines) if _parse_table_header(line) == table), None)
    if header is None:
        refuse_edit("it is not a separate [table], so it cannot be changed", path=format_path(tuple(path)))
    newline = "\r\n" if "\r\n" in text else "\n"
    if not lines[header].endswith("\n"):
        lines[header] += newline
    new_lines = [] if value is None else [f"{_format_key(key)} = {json.dumps(value)}{newline}"]
    end = next((n for n in range(header + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    pattern = re.compile(rf"\s*{re.escape(_format_key(key))}\s*=\s*(?:true|false)\s*")
    found = next((n for n in range(header + 1, end) if pattern.fullmatch(lines[n])), None)
    start, stop = (header + 1, header + 1) if found is None else (found, found + 1)
    return "".join([*lines[:start], *new_lines, *lines[stop:]])


def _find_sections(lines: Sequence[str], path: Sequence[str]) -> list[tuple[int, int]]:
    """Return the line ranges of a table and its sub-tables.

    Blank lines and comments at the end of a section are left out, because they usually belong to the next
    one.
    """
    headers = [
        (number, name) for number, line in enumerate(lines) if (name := _parse_table_header(line)) is not None
    ]
    ends = [*(number for number, _ in headers), len(lines)][1:]
    spans: list[tuple[int, int]] = []
    for (begin, name), end in zip(headers, ends, strict=False):
        if name[: len(path)] == list(path):
            while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
                end -= 1
            spans.append((begin, end))
    return spans


def _remove_sections(
    lines: Sequence[str], spans: Sequence[tuple[int, int]], path: Sequence[str]
) -> list[str]:
    removed = {number for begin, end in spans for number in range(begin, end)}
    if any("#" in lines[number] for number in removed):
        refuse_edit("the lines to be replaced may contain comments", path=format_path(tuple(path)))
    return [line for number, line in enumerate(lines) if number not in removed]


def _parse_table_header(line: str) -> list[str] | None:
    """Return the name of the table that begins on this line, as a list of keys, or None."""
    if not line.lstrip().startswith("["):
        return None
    # A header alone is a valid document, so the TOML parser handles quoted keys and blanks.
    try:
        value = cast("JsonValue", tomllib.loads(line))
    except tomllib.TOMLDecodeError:
        return None
    name: list[str] = []
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        name.append(key)
    # An element of an array of tables, [[name]], must not match the table [name].
    return [*name, ""] if isinstance(value, list) else name


def _format_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _format_toml_value(value: JsonValue) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{ "
            f"{', '.join(f'{_format_key(key)} = {_format_toml_value(item)}' for key, item in value.items())}"
            f" }}"
        )
    return json.dumps(value, ensure_ascii=False)
