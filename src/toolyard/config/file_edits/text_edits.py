"""Edit one member of a JSON text, or one table of a TOML text, and preserve comments and layout."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn, cast

from toolyard.config.sources.json_document import (
    JsonDocument,
    JsonValue,
    PositionedObject,
    format_path,
    read_json,
)
from toolyard.errors import ConfigError, Problem

__all__ = [
    "EMPTY_CONFIG",
    "EditRefused",
    "detect_newline",
    "find_comments",
    "format_table",
    "refuse_edit",
    "remove_member",
    "remove_table",
    "set_flag",
    "set_member",
    "set_table",
    "value_text",
]


EMPTY_CONFIG = '{\n  "mcpServers": {}\n}\n'
"""Text of a configuration file without servers."""


class EditRefused(ConfigError):
    """Raised when a file cannot be changed without losing something in it. The file was not changed."""


def refuse_edit(message: str, *, path: str = "") -> NoReturn:
    """Raise EditRefused without a file name, which ``plan_edits`` adds."""
    raise EditRefused([Problem(message, path=path, hint="edit the file by hand")])


# Strings come first, so that brackets and comment signs inside of them are not taken for tokens. The
# possessive quantifiers keep long lines without a match from backtracking.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|//[^\n]*+|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/]++', re.DOTALL)
_LEADING_BLANKS = re.compile(r"[ \t]*+")
_REST_OF_LINE = re.compile(r"[ \t]*+\r?\n")
_BRACKET_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


def set_member(text: str, path: Sequence[str], value: JsonValue, *, drop_comments: bool = False) -> str:
    """Return the text with ``value`` at ``path``; missing objects on the path are created.

    ``drop_comments``: comments inside of a replaced value are removed with it. Raises ConfigError if the text
    is not JSON, and EditRefused if a comment would be lost or a value on the path is not an object.
    """
    document = read_json(text)
    start = document.find_offset(tuple(path))
    if start is not None:
        end = _find_value_end(text, start)
        if not drop_comments:
            _refuse_comments(text, start, end, path)
        return text[:start] + _format_value(document, value, _line_indent(text, start)) + text[end:]
    parent, offset, depth = _find_deepest_object(document, path)
    for step in reversed(path[depth + 1 :]):
        value = {step: value}
    return _MemberInsertion(document, parent, offset).insert(path[depth], value)


def remove_member(text: str, path: Sequence[str], *, drop_comments: bool = False) -> str:
    """Return the text without the member at ``path``, which must exist. Raises as ``set_member``."""
    document = read_json(text)
    parent = _find_deepest_object(document, path[:-1])[0]
    start = document.find_offset(tuple(path), at_key=True) or 0
    end = _find_value_end(text, parent.value_offsets[path[-1]])
    if not drop_comments:
        _refuse_comments(text, start, end, path)
    comma = next(_iter_tokens(text, end), None)
    if comma is not None and comma[0] == ",":
        # A comment between the value and its comma would be removed as well.
        _refuse_comments(text, end, comma.start(), path)
        return _remove_span(text, start, comma.end())
    # The last member has no comma after it, so the comma before it has to go, unless it is the only member.
    earlier_offsets = [parent.value_offsets[key] for key in parent if parent.key_offsets[key] < start]
    if earlier_offsets:
        previous_end = _find_value_end(text, max(earlier_offsets))
        comma = next(token for token in _iter_tokens(text, previous_end) if token[0] == ",")
        if not text[comma.end() : start].strip():
            return text[: comma.start()] + text[end:]
        # A comment between comma and member stays, so remove both separately.
        text = text[: comma.start()] + text[comma.end() :]
        # The comma was before both offsets.
        start, end = start - 1, end - 1
    return _remove_span(text, start, end)


def value_text(text: str, path: Sequence[str]) -> str:
    """Return the text of the value at ``path``; empty if it does not exist."""
    start = read_json(text).find_offset(tuple(path))
    return "" if start is None else text[start : _find_value_end(text, start)]


def find_comments(text: str) -> list[str]:
    """Return all comments of a JSON text, in order."""
    return [token[0] for token in _TOKEN.finditer(text) if token[0].startswith(("//", "/*"))]


class _MemberInsertion:
    """Insertion of a member at the end of an object, in the layout of that object."""

    def __init__(self, document: JsonDocument, parent: PositionedObject, offset: int) -> None:
        self._document = document
        self._text = document.text
        self._parent = parent
        self._parent_offset = offset
        self._closing_offset = _find_value_end(self._text, offset) - 1

    def insert(self, key: str, value: JsonValue) -> str:
        text, close, name = self._text, self._closing_offset, json.dumps(key, ensure_ascii=False)
        head, comma = self._text_before_member()
        if self._parent and "\n" not in text[self._parent_offset : close]:
            bare = head.rstrip()
            member = f"{bare} {name}: {json.dumps(value, ensure_ascii=False)}{comma}"
            return f"{member}{head[len(bare) :]}{text[close:]}"
        newline, indent = detect_newline(text), self._member_indent()
        member = f"{indent}{name}: {_format_value(self._document, value, indent)}{comma}"
        closing_indent = _line_indent(text, self._parent_offset)
        return f"{head.rstrip()}{newline}{member}{newline}{closing_indent}{text[close:]}"

    def _text_before_member(self) -> tuple[str, str]:
        """Return the text before the new member, and a comma after it if the object has a trailing comma."""
        text = self._text
        if not self._parent:
            return text[: self._closing_offset], ""
        end = _find_value_end(text, max(self._parent.value_offsets.values()))
        following = next(_iter_tokens(text, end))
        if following[0] == ",":
            return text[: self._closing_offset], ","
        return f"{text[:end]},{text[end : self._closing_offset]}", ""

    def _member_indent(self) -> str:
        if self._parent:
            return _line_indent(self._text, min(self._parent.key_offsets.values()))
        return _line_indent(self._text, self._parent_offset) + _indent_unit(self._document)


def _find_deepest_object(document: JsonDocument, path: Sequence[str]) -> tuple[PositionedObject, int, int]:
    """Return the deepest existing object on the path, its offset, and the number of steps that exist."""
    current, offset = document.root, document.root_offset
    if not isinstance(current, PositionedObject):
        refuse_edit("the top level is not an object")
    for depth, step in enumerate(path):
        if step not in current:
            return current, offset, depth
        value = current[step]
        if not isinstance(value, PositionedObject):
            if depth == len(path) - 1:
                break
            refuse_edit("this is not an object", path=format_path(tuple(path[: depth + 1])))
        current, offset = value, current.value_offsets[step]
    return current, offset, len(path)


def _refuse_comments(text: str, start: int, end: int, path: Sequence[str]) -> None:
    if find_comments(text[start:end]):
        refuse_edit("the text to be replaced contains comments", path=format_path(tuple(path)))


def _iter_tokens(text: str, start: int) -> Iterator[re.Match[str]]:
    """Return the tokens from ``start`` on, without comments."""
    return (token for token in _TOKEN.finditer(text, start) if not token[0].startswith(("//", "/*")))


def _find_value_end(text: str, start: int) -> int:
    """Return the end of the value that begins at ``start``."""
    depth = 0
    for token in _iter_tokens(text, start):
        depth += _BRACKET_DEPTH.get(token[0], 0)
        if depth == 0:
            return token.end()
    return len(text)


def _remove_span(text: str, start: int, end: int) -> str:
    """Return the text without a span, and without its line if that is empty then."""
    head = text[:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if head.endswith("\n") and rest is not None:
        return head + text[rest.end() :]
    return text[:start] + text[end:].lstrip(" \t")


def _line_indent(text: str, offset: int) -> str:
    """Return the indentation of the line that contains ``offset``."""
    begin = text.rfind("\n", 0, offset) + 1
    blanks = _LEADING_BLANKS.match(text, begin)
    return text[begin : min(blanks.end() if blanks else begin, offset)]


def _indent_unit(document: JsonDocument) -> str:
    """Return one level of indentation as used in the file; two spaces if it has none."""
    root = document.root
    first = min(root.key_offsets.values(), default=0) if isinstance(root, PositionedObject) else 0
    return _line_indent(document.text, first) or "  "


def detect_newline(text: str) -> str:
    """Return the line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"


def _format_value(document: JsonDocument, value: JsonValue, indent: str) -> str:
    body = json.dumps(value, indent=_indent_unit(document), ensure_ascii=False)
    return body.replace("\n", f"{detect_newline(document.text)}{indent}")


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
    newline = detect_newline(text)
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
    newline = detect_newline(text)
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
    # Also refuses a ``#`` in a string: better than losing a comment.
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
