"""One member of a JSON file that a person wrote, set or taken out where it stands; comments stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from toolyard.config.exporters.errors import refuse
from toolyard.config.sources.json_document import Document, JsonValue, PlacedObject, path_text
from toolyard.config.sources.json_reader import read_json

__all__ = ["comments", "drop_member", "put_member"]

_PIECE = re.compile(
    r'"(?:[^"\\]|\\.)*+"|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|[{}\[\],:]|[^\s{}\[\],:"/]++', re.DOTALL
)
_LEAD = re.compile(r"[ \t]*+")
_REST_OF_LINE = re.compile(r"[ \t]*+\r?\n")
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


def put_member(text: str, path: Sequence[str], value: JsonValue) -> str:
    """The text with ``value`` at ``path``; objects on the way are made where they are missing.

    Raises ConfigError where the text is no JSON, EditRefused where a comment would be lost or something
    else stands in the way.
    """
    document = read_json(text)
    holder, at, depth = _deepest(document, path)
    if depth == len(path):
        start = document.offset_of(tuple(path)) or 0
        end = _end(text, start)
        _no_comments(text, start, end, path)
        return text[:start] + _body(document, value, _indent_at(text, start)) + text[end:]
    for step in reversed(path[depth + 1 :]):
        value = {step: value}
    return _Insertion(document, holder, at).of(path[depth], value)


def drop_member(text: str, path: Sequence[str]) -> str:
    """The text without the member at ``path``, which must be there. Raises as ``put_member``."""
    document = read_json(text)
    holder = _deepest(document, path[:-1])[0]
    start = document.offset_of(tuple(path), key=True) or 0
    end = _end(text, holder.values_at[path[-1]])
    _no_comments(text, start, end, path)
    comma = next(_pieces(text, end), None)
    if comma is not None and comma[0] == ",":
        # What stands between the value and its comma belongs to nobody else.
        _no_comments(text, end, comma.start(), path)
        return _without_line(text, start, comma.end())
    before = [holder.values_at[key] for key in holder if holder.keys_at[key] < start]
    if before:
        last = _end(text, max(before))
        before_it = next(piece for piece in _pieces(text, last) if piece[0] == ",")
        if not text[before_it.end() : start].strip():
            return text[: before_it.start()] + text[end:]
        text = text[: before_it.start()] + text[before_it.end() :]
        start, end = start - 1, end - 1
    return _without_line(text, start, end)


def comments(text: str) -> list[str]:
    """Every comment of a text of JSON, in order."""
    return [piece[0] for piece in _PIECE.finditer(text) if piece[0].startswith(("//", "/*"))]


class _Insertion:
    """A member at the end of an object, in the object's own layout."""

    def __init__(self, document: Document, holder: PlacedObject, at: int) -> None:
        self._document = document
        self._text = document.text
        self._holder = holder
        self._at = at
        self._close = _end(self._text, at) - 1

    def of(self, key: str, value: JsonValue) -> str:
        text, close, name = self._text, self._close, json.dumps(key, ensure_ascii=False)
        head, comma = self._before()
        if self._holder and "\n" not in text[self._at : close]:
            return f"{head.rstrip()} {name}: {json.dumps(value, ensure_ascii=False)}{comma}{text[close:]}"
        newline, indent = _newline(text), self._indent()
        member = f"{indent}{name}: {_body(self._document, value, indent)}{comma}"
        closing = _indent_at(text, self._at)
        return f"{head.rstrip()}{newline}{member}{newline}{closing}{text[close:]}"

    def _before(self) -> tuple[str, str]:
        """What stands before the new member, with a comma where one is needed, and what follows it: a comma
        where the last one had one too."""
        text = self._text
        if not self._holder:
            return text[: self._close], ""
        end = _end(text, max(self._holder.values_at.values()))
        following = next(_pieces(text, end))
        if following[0] == ",":
            return text[: self._close], ","
        return f"{text[:end]},{text[end : self._close]}", ""

    def _indent(self) -> str:
        if self._holder:
            return _indent_at(self._text, min(self._holder.keys_at.values()))
        return _indent_at(self._text, self._at) + _unit(self._document)


def _deepest(document: Document, path: Sequence[str]) -> tuple[PlacedObject, int, int]:
    """The last object on the way that is there, where it begins, and how many steps lead into it or to what
    stands at the end of the path."""
    holder, at = document.root, document.root_at
    if not isinstance(holder, PlacedObject):
        refuse("the file holds no object")
    for depth, step in enumerate(path):
        if step not in holder:
            return holder, at, depth
        value = holder[step]
        if not isinstance(value, PlacedObject):
            if depth == len(path) - 1:
                break
            refuse("this is no object", path=path_text(tuple(path[: depth + 1])))
        holder, at = value, holder.values_at[step]
    return holder, at, len(path)


def _no_comments(text: str, start: int, end: int, path: Sequence[str]) -> None:
    if comments(text[start:end]):
        refuse("there are comments in what would be replaced", path=path_text(tuple(path)))


def _pieces(text: str, start: int) -> Iterator[re.Match[str]]:
    """What stands there from ``start`` on, comments left out."""
    return (piece for piece in _PIECE.finditer(text, start) if not piece[0].startswith(("//", "/*")))


def _end(text: str, start: int) -> int:
    """Where the value that begins at ``start`` ends."""
    depth = 0
    for piece in _pieces(text, start):
        depth += _DEPTH.get(piece[0], 0)
        if depth == 0:
            return piece.end()
    return len(text)


def _without_line(text: str, start: int, end: int) -> str:
    """Without a part, and without the line that is empty then."""
    head = text[:start].rstrip(" \t")
    rest = _REST_OF_LINE.match(text, end)
    if head.endswith("\n") and rest is not None:
        return head + text[rest.end() :]
    return text[:start] + text[end:].lstrip(" \t")


def _indent_at(text: str, offset: int) -> str:
    """The white space at the beginning of a line."""
    begin = text.rfind("\n", 0, offset) + 1
    lead = _LEAD.match(text, begin)
    return text[begin : min(lead.end() if lead else begin, offset)]


def _unit(document: Document) -> str:
    """One step of indentation, as the file has it."""
    root = document.root
    first = min(root.keys_at.values(), default=0) if isinstance(root, PlacedObject) else 0
    return _indent_at(document.text, first) or "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _body(document: Document, value: JsonValue, indent: str) -> str:
    body = json.dumps(value, indent=_unit(document), ensure_ascii=False)
    return body.replace("\n", f"{_newline(document.text)}{indent}")
