"""One member of a JSON file that a person wrote, set or taken out where it stands; comments stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from toolyard.config.exporters.errors import refuse_edit
from toolyard.config.sources.json_document import JsonDocument, JsonValue, PositionedObject, format_path
from toolyard.config.sources.json_reader import read_json

__all__ = ["find_comments", "remove_member", "set_member"]

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*+"|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|[{}\[\],:]|[^\s{}\[\],:"/]++', re.DOTALL
)
_LEADING_BLANKS = re.compile(r"[ \t]*+")
_REST_OF_LINE = re.compile(r"[ \t]*+\r?\n")
_BRACKET_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


def set_member(text: str, path: Sequence[str], value: JsonValue) -> str:
    """The text with ``value`` at ``path``; objects on the way are made where they are missing.

    Raises ConfigError where the text is no JSON, EditRefused where a comment would be lost or something
    else stands in the way.
    """
    document = read_json(text)
    holder, at, depth = _find_deepest_object(document, path)
    if depth == len(path):
        start = document.find_offset(tuple(path)) or 0
        end = _find_value_end(text, start)
        _refuse_comments(text, start, end, path)
        return text[:start] + _format_value(document, value, _line_indent(text, start)) + text[end:]
    for step in reversed(path[depth + 1 :]):
        value = {step: value}
    return _MemberInsertion(document, holder, at).insert(path[depth], value)


def remove_member(text: str, path: Sequence[str]) -> str:
    """The text without the member at ``path``, which must be there. Raises as ``put_member``."""
    document = read_json(text)
    holder = _find_deepest_object(document, path[:-1])[0]
    start = document.find_offset(tuple(path), at_key=True) or 0
    end = _find_value_end(text, holder.value_offsets[path[-1]])
    _refuse_comments(text, start, end, path)
    comma = next(_iter_tokens(text, end), None)
    if comma is not None and comma[0] == ",":
        # What stands between the value and its comma belongs to nobody else.
        _refuse_comments(text, end, comma.start(), path)
        return _remove_span(text, start, comma.end())
    before = [holder.value_offsets[key] for key in holder if holder.key_offsets[key] < start]
    if before:
        last = _find_value_end(text, max(before))
        before_it = next(piece for piece in _iter_tokens(text, last) if piece[0] == ",")
        if not text[before_it.end() : start].strip():
            return text[: before_it.start()] + text[end:]
        text = text[: before_it.start()] + text[before_it.end() :]
        start, end = start - 1, end - 1
    return _remove_span(text, start, end)


def find_comments(text: str) -> list[str]:
    """Every comment of a text of JSON, in order."""
    return [piece[0] for piece in _TOKEN.finditer(text) if piece[0].startswith(("//", "/*"))]


class _MemberInsertion:
    """A member at the end of an object, in the object's own layout."""

    def __init__(self, document: JsonDocument, holder: PositionedObject, at: int) -> None:
        self._document = document
        self._text = document.text
        self._holder = holder
        self._holder_offset = at
        self._closing_offset = _find_value_end(self._text, at) - 1

    def insert(self, key: str, value: JsonValue) -> str:
        text, close, name = self._text, self._closing_offset, json.dumps(key, ensure_ascii=False)
        head, comma = self._text_before_member()
        if self._holder and "\n" not in text[self._holder_offset : close]:
            return f"{head.rstrip()} {name}: {json.dumps(value, ensure_ascii=False)}{comma}{text[close:]}"
        newline, indent = _detect_newline(text), self._member_indent()
        member = f"{indent}{name}: {_format_value(self._document, value, indent)}{comma}"
        closing = _line_indent(text, self._holder_offset)
        return f"{head.rstrip()}{newline}{member}{newline}{closing}{text[close:]}"

    def _text_before_member(self) -> tuple[str, str]:
        """What stands before the new member, with a comma where one is needed, and what follows it: a comma
        where the last one had one too."""
        text = self._text
        if not self._holder:
            return text[: self._closing_offset], ""
        end = _find_value_end(text, max(self._holder.value_offsets.values()))
        following = next(_iter_tokens(text, end))
        if following[0] == ",":
            return text[: self._closing_offset], ","
        return f"{text[:end]},{text[end : self._closing_offset]}", ""

    def _member_indent(self) -> str:
        if self._holder:
            return _line_indent(self._text, min(self._holder.key_offsets.values()))
        return _line_indent(self._text, self._holder_offset) + _indent_unit(self._document)


def _find_deepest_object(document: JsonDocument, path: Sequence[str]) -> tuple[PositionedObject, int, int]:
    """The last object on the way that is there, where it begins, and how many steps lead into it or to what
    stands at the end of the path."""
    holder, at = document.root, document.root_offset
    if not isinstance(holder, PositionedObject):
        refuse_edit("the file holds no object")
    for depth, step in enumerate(path):
        if step not in holder:
            return holder, at, depth
        value = holder[step]
        if not isinstance(value, PositionedObject):
            if depth == len(path) - 1:
                break
            refuse_edit("this is no object", path=format_path(tuple(path[: depth + 1])))
        holder, at = value, holder.value_offsets[step]
    return holder, at, len(path)


def _refuse_comments(text: str, start: int, end: int, path: Sequence[str]) -> None:
    if find_comments(text[start:end]):
        refuse_edit("there are comments in what would be replaced", path=format_path(tuple(path)))


def _iter_tokens(text: str, start: int) -> Iterator[re.Match[str]]:
    """What stands there from ``start`` on, comments left out."""
    return (piece for piece in _TOKEN.finditer(text, start) if not piece[0].startswith(("//", "/*")))


def _find_value_end(text: str, start: int) -> int:
    """Where the value that begins at ``start`` ends."""
    depth = 0
    for piece in _iter_tokens(text, start):
        depth += _BRACKET_DEPTH.get(piece[0], 0)
        if depth == 0:
            return piece.end()
    return len(text)


def _remove_span(text: str, start: int, end: int) -> str:
    """Without a part, and without the line that is empty then."""
    head = text[:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if head.endswith("\n") and rest is not None:
        return head + text[rest.end() :]
    return text[:start] + text[end:].lstrip(" \t")


def _line_indent(text: str, offset: int) -> str:
    """The white space at the beginning of a line."""
    begin = text.rfind("\n", 0, offset) + 1
    lead = _LEADING_BLANKS.match(text, begin)
    return text[begin : min(lead.end() if lead else begin, offset)]


def _indent_unit(document: JsonDocument) -> str:
    """One step of indentation, as the file has it."""
    root = document.root
    first = min(root.key_offsets.values(), default=0) if isinstance(root, PositionedObject) else 0
    return _line_indent(document.text, first) or "  "


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _format_value(document: JsonDocument, value: JsonValue, indent: str) -> str:
    body = json.dumps(value, indent=_indent_unit(document), ensure_ascii=False)
    return body.replace("\n", f"{_detect_newline(document.text)}{indent}")
