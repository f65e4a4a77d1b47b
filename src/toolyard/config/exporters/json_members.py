"""Set or remove one member in the text of a JSON file, preserving comments and layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from toolyard.config.exporters.errors import refuse_edit
from toolyard.config.sources.json_document import JsonDocument, JsonValue, PositionedObject, format_path
from toolyard.config.sources.json_reader import read_json

__all__ = ["detect_newline", "find_comments", "remove_member", "set_member", "value_text"]

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
