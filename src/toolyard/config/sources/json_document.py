"""JSON with comments and trailing commas, and the position of each key and value in the text.

One regular expression splits the text into tokens, and one loop with an explicit stack builds the value. So
the cost is linear, and deep nesting cannot reach Python's recursion limit. The quantifiers are possessive
(``*+``), which prevents backtracking. Messages describe the kind of a token and never its text, which may be
a secret.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NoReturn, TypeAlias

from toolyard.errors import ConfigError, Problem

__all__ = [
    "MAX_JSON_DEPTH",
    "JsonDocument",
    "JsonPath",
    "JsonValue",
    "PositionedList",
    "PositionedObject",
    "format_path",
    "map_texts",
    "read_json",
]


JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonPath: TypeAlias = tuple[str | int, ...]
"""Path from the root to a value: keys and list indexes."""

_MAX_STEP_CHARACTERS = 80
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_$-]{{1,{_MAX_STEP_CHARACTERS}}}")


class PositionedObject(dict[str, JsonValue]):
    """JSON object with the offsets of its keys and values in the text."""

    __slots__ = ("key_offsets", "value_offsets")
    closing_bracket: ClassVar = "}"

    def __init__(self) -> None:
        self.key_offsets: dict[str, int] = {}
        self.value_offsets: dict[str, int] = {}

    def put(self, key: str, value: JsonValue, start: int) -> None:
        self[key] = value
        self.value_offsets[key] = start


class PositionedList(list[JsonValue]):
    """JSON array with the offsets of its values in the text."""

    __slots__ = ("value_offsets",)
    closing_bracket: ClassVar = "]"

    def __init__(self) -> None:
        self.value_offsets: list[int] = []

    def put(self, key: str, value: JsonValue, start: int) -> None:
        del key
        self.append(value)
        self.value_offsets.append(start)


@dataclass(frozen=True)
class JsonDocument:
    """A parsed text.

    ``root`` equals the result of ``json.loads``, apart from comments and trailing commas.
    """

    root: JsonValue
    text: str
    root_offset: int = 0
    duplicate_keys: tuple[Problem, ...] = ()
    """Keys that occur twice in one object; the last value is used."""

    # Offsets are recorded while parsing; lines and columns are computed only for messages, since most values
    # are never part of one.

    def find_offset(self, path: JsonPath, *, at_key: bool = False) -> int | None:
        """Return the offset of the value at ``path``, or of its key; None if it does not exist."""
        value, offset = self.root, self.root_offset
        for number, step in enumerate(path, 1):
            if isinstance(value, PositionedObject) and isinstance(step, str) and step in value:
                use_key = at_key and number == len(path)
                offset = value.key_offsets[step] if use_key else value.value_offsets[step]
                value = value[step]
            elif isinstance(value, PositionedList) and isinstance(step, int) and step < len(value):
                offset, value = value.value_offsets[step], value[step]
            else:
                return None
        return offset

    def find_position(self, path: JsonPath, *, at_key: bool = False) -> tuple[int, int] | None:
        """Return line and column of a value or of its key, counted from 1; None if it does not exist."""
        offset = self.find_offset(path, at_key=at_key)
        return None if offset is None else self.line_and_column(offset)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, counted from 1."""
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] + 1 if line else 0) + 1

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]


def map_texts(value: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """Return a value with every string in it changed, except keys."""
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {key: map_texts(item, change) for key, item in value.items()}
    return change(value) if isinstance(value, str) else value


def format_path(path: JsonPath) -> str:
    """Format a path for messages, e.g. ``servers.repo.allowTools[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            shortened = step if len(step) <= _MAX_STEP_CHARACTERS else f"{step[:_MAX_STEP_CHARACTERS]}..."
            text += f"[{shortened!r}]"
    return text


MAX_JSON_DEPTH = 64
"""Maximum nesting of objects and lists. Code that processes the result may be recursive."""
_MAX_DUPLICATE_REPORTS = 100
"""Maximum number of duplicate keys reported for one text."""

_STRING_BODY = r'[^"\\\x00-\x1f]*+'
# One group per kind of token, in the order of the constants _PUNCTUATION to _END, so that match.lastindex is
# the kind. Strings without escapes, the most frequent kind, have a group that needs no decoding. A keyword
# must not be the beginning of a longer word.
_TOKEN = re.compile(
    r"[ \t\r\n]*+(?:"
    r"([{}\[\]:,])"
    rf'|"({_STRING_BODY})"'
    rf'|"({_STRING_BODY}(?:\\.{_STRING_BODY})*+)"'
    r"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"
    r"|(true|false|null)(?![A-Za-z0-9_])"
    r"|(//[^\n]*+|/\*(?s:.*?)\*/)"
    r"|(\Z))",
)
# Fast paths for the most frequent sequences. With a comment or an escape they do not match, and the general
# token loop takes over.
_KEY_AND_COLON = re.compile(rf'[ \t\r\n]*+"({_STRING_BODY})"[ \t\r\n]*+:')
_COMMA = re.compile(r"[ \t\r\n]*+,")
_PUNCTUATION, _PLAIN_STRING, _ESCAPED_STRING, _NUMBER, _KEYWORD, _COMMENT, _END = range(1, 8)
_KEYWORD_VALUES: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_WHITESPACE = re.compile(r"[ \t\r\n]*+")
_BARE_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPE_CHARACTERS = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_json(text: str, *, file: str | None = None) -> JsonDocument:
    """Parse ``text``. Raises ConfigError, with file and line, if it is invalid."""
    return _JsonParser(text, file).parse()


class _JsonParser:
    """State of one parse: the open containers, the path to the current one, and duplicate keys."""

    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._positions = JsonDocument(None, text)
        self._open_containers: list[PositionedObject | PositionedList] = []
        self._path: list[str | int] = []
        self._duplicates: list[Problem] = []

    def parse(self) -> JsonDocument:
        self._check_characters()
        first = self._next_token(0)
        value, position = self._parse_value(0)
        match = self._next_token(position)
        if match.lastindex != _END:
            self._raise_unexpected(match, "the end of the file")
        return JsonDocument(value, self._text, first.start(first.lastindex or 0), tuple(self._duplicates))

    def _parse_value(self, position: int) -> tuple[JsonValue, int]:
        """Parse the value at ``position`` and return it with its end.

        ``container`` is the innermost open object or array. Each iteration reads one member or element, or
        the closing bracket of the container.
        """
        container: PositionedObject | PositionedList | None = None
        while True:
            key = ""
            if isinstance(container, PositionedObject) and (
                head := _KEY_AND_COLON.match(self._text, position)
            ):
                key = self._record_key(container, head[1], head.start(1) - 1)
                match = self._next_token(head.end())
            else:
                match = self._next_token(position)
                # Accepted after a comma, too, which permits trailing commas.
                if container is not None and match[_PUNCTUATION] == container.closing_bracket:
                    closed, container = container, self._pop_container()
                    if container is None:
                        return closed, match.end()
                    position = self._skip_comma(container, match.end())
                    continue
                if isinstance(container, PositionedObject):
                    key, match = self._parse_key(container, match)
            value, start = self._start_value(match)
            if container is not None:
                container.put(key, value, start)
            if isinstance(value, (PositionedObject, PositionedList)):
                self._push_container(container, key, value, start)
                container, position = value, match.end()
            elif container is None:
                return value, match.end()
            else:
                position = self._skip_comma(container, match.end())

    def _next_token(self, position: int) -> re.Match[str]:
        match = _TOKEN.match(self._text, position)
        while match is not None and match.lastindex == _COMMENT:
            match = _TOKEN.match(self._text, match.end())
        if match is None:
            self._raise_invalid_token(position)
        return match

    def _start_value(self, match: re.Match[str]) -> tuple[JsonValue, int]:
        """Return the value of a token, or the empty container that it opens, with its offset."""
        kind = match.lastindex
        if kind == _PLAIN_STRING:
            return match[_PLAIN_STRING], match.start(_PLAIN_STRING) - 1
        if kind == _PUNCTUATION and match[_PUNCTUATION] in "{[":
            container = PositionedObject() if match[_PUNCTUATION] == "{" else PositionedList()
            return container, match.start(_PUNCTUATION)
        return self._parse_scalar(match), match.start(kind or 0) - (kind == _ESCAPED_STRING)

    def _parse_key(self, container: PositionedObject, match: re.Match[str]) -> tuple[str, re.Match[str]]:
        """Return the key of a token, and the first token of its value."""
        kind = match.lastindex or 0
        if kind == _PLAIN_STRING:
            key = match[_PLAIN_STRING]
        elif kind == _ESCAPED_STRING:
            key = self._unescape_string(match)
        else:
            self._raise_unexpected(match, "a key in double quotes or '}'")
        self._record_key(container, key, match.start(kind) - 1)
        colon = self._next_token(match.end())
        if colon[_PUNCTUATION] != ":":
            self._raise_unexpected(colon, "':' after the key")
        return key, self._next_token(colon.end())

    def _record_key(self, container: PositionedObject, key: str, start: int) -> str:
        offsets = container.key_offsets
        if key in offsets:
            self._record_duplicate(key, offsets[key], start)
        offsets[key] = start
        return key

    def _skip_comma(self, container: PositionedObject | PositionedList, position: int) -> int:
        """Return the position after a comma. A closing bracket is left for the next iteration."""
        comma = _COMMA.match(self._text, position)
        if comma is not None:
            return comma.end()
        match = self._next_token(position)
        if match[_PUNCTUATION] == ",":
            return match.end()
        if match[_PUNCTUATION] != container.closing_bracket:
            self._raise_unexpected(match, f"a comma or '{container.closing_bracket}'")
        return position

    def _push_container(
        self,
        parent: PositionedObject | PositionedList | None,
        key: str,
        value: PositionedObject | PositionedList,
        start: int,
    ) -> None:
        if parent is not None:
            self._path.append(key if isinstance(parent, PositionedObject) else len(parent) - 1)
        self._open_containers.append(value)
        if len(self._open_containers) > MAX_JSON_DEPTH:
            self._raise_error(start, f"objects and lists are nested more than {MAX_JSON_DEPTH} levels deep")

    def _pop_container(self) -> PositionedObject | PositionedList | None:
        self._open_containers.pop()
        if not self._open_containers:
            return None
        self._path.pop()
        return self._open_containers[-1]

    def _parse_scalar(self, match: re.Match[str]) -> JsonValue:
        kind = match.lastindex
        if kind == _ESCAPED_STRING:
            return self._unescape_string(match)
        if kind == _NUMBER:
            return self._parse_number(match)
        if kind != _KEYWORD:
            self._raise_unexpected(match, "a value")
        return _KEYWORD_VALUES[match[_KEYWORD]]

    def _parse_number(self, match: re.Match[str]) -> int | float:
        digits = match[_NUMBER]
        # int() also fails for integers of more than 4,300 digits, a limit of Python against slow conversions.
        try:
            return int(digits)
        except ValueError:
            pass
        if len(digits) > 400:
            self._raise_error(match.start(_NUMBER), f"a number of {len(digits)} characters is too long")
        return float(digits)

    def _unescape_string(self, match: re.Match[str]) -> str:
        def replace_escape(escape: re.Match[str]) -> str:
            code, letter = escape[1], escape[2]
            if code is not None:
                return chr(int(code, 16))
            if letter not in _ESCAPE_CHARACTERS:
                start = match.start(_ESCAPED_STRING) + escape.start()
                hint = "write a literal backslash as \\\\"
                self._raise_error(start, "a backslash without a valid JSON escape", hint=hint)
            return _ESCAPE_CHARACTERS[letter]

        text = _ESCAPE.sub(replace_escape, match[_ESCAPED_STRING])
        if _SURROGATE.search(text) is None:
            return text
        # JSON writes a character beyond U+FFFF as two \u escapes, a surrogate pair. Encoding to UTF-16 and
        # back joins pairs into characters, and fails for a surrogate without its counterpart.
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._raise_error(match.start(_ESCAPED_STRING), "an unpaired surrogate, which is not a character")

    def _check_characters(self) -> None:
        # A str can contain lone surrogates, e.g. from an environment variable that is not valid UTF-8. They
        # cannot be encoded again and would fail later, far from the cause.
        stray = None if self._text.isascii() else _SURROGATE.search(self._text)
        if stray is not None:
            self._raise_error(stray.start(), "the text is not valid UTF-8", hint="save it as UTF-8")

    def _record_duplicate(self, key: str, first: int, second: int) -> None:
        if len(self._duplicates) >= _MAX_DUPLICATE_REPORTS:
            return
        self._duplicates.append(
            Problem(
                "the key is duplicated in this object; it is first defined on line "
                f"{self._positions.line_and_column(first)[0]}",
                file=self._file,
                line=self._positions.line_and_column(second)[0],
                path=format_path((*self._path, key)),
                hint="keep one of the two",
            )
        )

    def _raise_unexpected(self, match: re.Match[str], expected: str) -> NoReturn:
        kind = match.lastindex or 0
        found = {
            _PUNCTUATION: f"'{match[_PUNCTUATION]}'",
            _PLAIN_STRING: "a string",
            _ESCAPED_STRING: "a string",
            _NUMBER: "a number",
            _KEYWORD: match[_KEYWORD],
            _END: "the end of the file",
        }[kind]
        lacks_comma = expected.startswith("a comma") and kind in (
            _PLAIN_STRING,
            _ESCAPED_STRING,
            _NUMBER,
            _KEYWORD,
        )
        hint = "is a comma missing before it?" if lacks_comma else None
        start = match.start(kind) - (kind in (_PLAIN_STRING, _ESCAPED_STRING))
        self._raise_error(start, f"expected {expected}, found {found}", hint=hint)

    def _raise_invalid_token(self, position: int) -> NoReturn:
        blank = _WHITESPACE.match(self._text, position)
        start = blank.end() if blank else position
        rest = self._text[start : start + 2]
        if rest == "/*":
            self._raise_error(start, "an unterminated comment", hint="close it with */")
        if rest.startswith('"'):
            message = "a string that is not terminated, or contains a raw line break or tab"
            self._raise_error(start, message, hint='close it with ", and write \\n or \\t inside it')
        if rest.startswith("'"):
            self._raise_error(start, "a string in single quotes", hint="use double quotes")
        if _BARE_WORD.match(self._text, start):
            self._raise_error(start, "a word without quotes", hint="put strings and keys in double quotes")
        self._raise_error(start, f"unexpected character {rest[:1]!a}")

    def _raise_error(self, offset: int, message: str, *, hint: str | None = None) -> NoReturn:
        line, column = self._positions.line_and_column(offset)
        # Include the duplicate keys found so far, so that one run reports as much as possible.
        problem = Problem(
            f"not valid JSON at column {column}: {message}", file=self._file, line=line, hint=hint
        )
        raise ConfigError([*self._duplicates, problem])
