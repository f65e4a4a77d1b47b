"""JSON as people write it: with comments and trailing commas, and with a position for every key and value.

One regular expression cuts the text into tokens and one loop with a stack of its own builds the value, so
the cost is linear and no nesting, however deep, reaches Python's recursion limit. Messages name what kind of
thing was found and never its text, which may be a secret.
"""

from __future__ import annotations

import re
from typing import NoReturn

from toolyard.config.sources.json_document import Document, JsonValue, PlacedList, PlacedObject, path_text
from toolyard.errors import ConfigError, Problem

__all__ = ["MAX_DEPTH", "read_json"]

MAX_DEPTH = 64
_MOST_DUPLICATES = 100

_STRING = r'[^"\\\x00-\x1f]*+'
_TOKEN = re.compile(
    r"[ \t\r\n]*+(?:"
    r"([{}\[\]:,])"
    rf'|"({_STRING})"'
    rf'|"({_STRING}(?:\\.{_STRING})*+)"'
    r"|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)"
    r"|(true|false|null)(?![A-Za-z0-9_])"
    r"|(//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)"
    r"|(\Z))",
)
# Shortcuts for what stands there nearly always; where a comment or an escape is in the way, tokens decide.
_HEAD = re.compile(rf'[ \t\r\n]*+"({_STRING})"[ \t\r\n]*+:')
_COMMA = re.compile(r"[ \t\r\n]*+,")
_PUNCTUATION, _PLAIN, _ESCAPED, _NUMBER, _WORD, _COMMENT, _END = range(1, 8)
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_BLANK = re.compile(r"[ \t\r\n]*+")
_BARE = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def read_json(text: str, *, file: str | None = None) -> Document:
    """Read ``text``. Raises ConfigError, with file and line, for whatever is not JSON."""
    return _Reader(text, file).read()


class _Reader:
    """The state of one reading: where we are, and the containers that are still open."""

    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._places = Document(None, text)
        self._open: list[PlacedObject | PlacedList] = []
        self._path: list[str | int] = []
        self._duplicates: list[Problem] = []

    def read(self) -> Document:
        self._check_characters()
        first = self._token(0)
        value, position = self._value(0)
        match = self._token(position)
        if match.lastindex != _END:
            self._fail(match, "the end of the file")
        return Document(value, self._text, first.start(first.lastindex or 0), tuple(self._duplicates))

    def _value(self, position: int) -> tuple[JsonValue, int]:
        """The value that begins at ``position``, and where it ends."""
        container: PlacedObject | PlacedList | None = None
        while True:
            key = ""
            if isinstance(container, PlacedObject) and (head := _HEAD.match(self._text, position)):
                key = self._note_key(container, head[1], head.start(1) - 1)
                match = self._token(head.end())
            else:
                match = self._token(position)
                if container is not None and match[_PUNCTUATION] == container.closing:
                    closed, container = container, self._close()
                    if container is None:
                        return closed, match.end()
                    position = self._separator(container, match.end())
                    continue
                if isinstance(container, PlacedObject):
                    key, match = self._key(container, match)
            value, start = self._begin(match)
            if container is not None:
                container.put(key, value, start)
            if isinstance(value, (PlacedObject, PlacedList)):
                self._open_container(container, key, value, start)
                container, position = value, match.end()
            elif container is None:
                return value, match.end()
            else:
                position = self._separator(container, match.end())

    def _token(self, position: int) -> re.Match[str]:
        match = _TOKEN.match(self._text, position)
        while match is not None and match.lastindex == _COMMENT:
            match = _TOKEN.match(self._text, match.end())
        if match is None:
            self._fail_at_garbage(position)
        return match

    def _begin(self, match: re.Match[str]) -> tuple[JsonValue, int]:
        """The value that a token is, or begins, and its offset."""
        kind = match.lastindex
        if kind == _PLAIN:
            return match[_PLAIN], match.start(_PLAIN) - 1
        if kind == _PUNCTUATION and match[_PUNCTUATION] in "{[":
            container = PlacedObject() if match[_PUNCTUATION] == "{" else PlacedList()
            return container, match.start(_PUNCTUATION)
        return self._scalar(match), match.start(kind or 0) - (kind == _ESCAPED)

    def _key(self, container: PlacedObject, match: re.Match[str]) -> tuple[str, re.Match[str]]:
        """The key that a token is, and the first token of its value."""
        kind = match.lastindex or 0
        if kind == _PLAIN:
            key = match[_PLAIN]
        elif kind == _ESCAPED:
            key = self._unescape(match)
        else:
            self._fail(match, "a key in double quotes or '}'")
        self._note_key(container, key, match.start(kind) - 1)
        colon = self._token(match.end())
        if colon[_PUNCTUATION] != ":":
            self._fail(colon, "':' after the key")
        return key, self._token(colon.end())

    def _note_key(self, container: PlacedObject, key: str, start: int) -> str:
        places = container.keys_at
        if key in places:
            self._note_duplicate(key, places[key], start)
        places[key] = start
        return key

    def _separator(self, container: PlacedObject | PlacedList, position: int) -> int:
        """Step over a comma; the closing bracket is left for the next round."""
        comma = _COMMA.match(self._text, position)
        if comma is not None:
            return comma.end()
        match = self._token(position)
        if match[_PUNCTUATION] == ",":
            return match.end()
        if match[_PUNCTUATION] != container.closing:
            self._fail(match, f"a comma or '{container.closing}'")
        return position

    def _open_container(
        self, parent: PlacedObject | PlacedList | None, key: str, value: PlacedObject | PlacedList, start: int
    ) -> None:
        if parent is not None:
            self._path.append(key if isinstance(parent, PlacedObject) else len(parent) - 1)
        self._open.append(value)
        if len(self._open) > MAX_DEPTH:
            self._stop(start, f"more than {MAX_DEPTH} objects and lists stand inside each other")

    def _close(self) -> PlacedObject | PlacedList | None:
        self._open.pop()
        if not self._open:
            return None
        self._path.pop()
        return self._open[-1]

    def _scalar(self, match: re.Match[str]) -> JsonValue:
        kind = match.lastindex
        if kind == _ESCAPED:
            return self._unescape(match)
        if kind == _NUMBER:
            return self._number(match)
        if kind != _WORD:
            self._fail(match, "a value")
        return _WORDS[match[_WORD]]

    def _number(self, match: re.Match[str]) -> int | float:
        digits = match[_NUMBER]
        try:
            return int(digits)
        except ValueError:
            pass
        if len(digits) > 400:
            self._stop(match.start(_NUMBER), f"a number of {len(digits)} characters is too long")
        return float(digits)

    def _unescape(self, match: re.Match[str]) -> str:
        def one(escape: re.Match[str]) -> str:
            code, letter = escape[1], escape[2]
            if code is not None:
                return chr(int(code, 16))
            if letter not in _ESCAPES:
                start = match.start(_ESCAPED) + escape.start()
                hint = "a backslash itself is written \\\\"
                self._stop(start, "a backslash that begins no JSON escape", hint=hint)
            return _ESCAPES[letter]

        text = _ESCAPE.sub(one, match[_ESCAPED])
        if _SURROGATE.search(text) is None:
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._stop(match.start(_ESCAPED), "half of a surrogate pair, which is no character")

    def _check_characters(self) -> None:
        stray = None if self._text.isascii() else _SURROGATE.search(self._text)
        if stray is not None:
            self._stop(stray.start(), "the text is not valid UTF-8", hint="save it as UTF-8")

    def _note_duplicate(self, key: str, first: int, second: int) -> None:
        if len(self._duplicates) >= _MOST_DUPLICATES:
            return
        self._duplicates.append(
            Problem(
                f"the key stands twice in one object, first on line {self._places.position(first)[0]}",
                file=self._file,
                line=self._places.position(second)[0],
                path=path_text((*self._path, key)),
                hint="keep one of the two",
            )
        )

    def _fail(self, match: re.Match[str], expected: str) -> NoReturn:
        kind = match.lastindex or 0
        found = {
            _PUNCTUATION: f"'{match[_PUNCTUATION]}'",
            _PLAIN: "a string",
            _ESCAPED: "a string",
            _NUMBER: "a number",
            _WORD: match[_WORD],
            _END: "the end of the file",
        }[kind]
        lacks_comma = expected.startswith("a comma") and kind in (_PLAIN, _ESCAPED, _NUMBER, _WORD)
        hint = "is a comma missing before it?" if lacks_comma else None
        start = match.start(kind) - (kind in (_PLAIN, _ESCAPED))
        self._stop(start, f"expected {expected}, found {found}", hint=hint)

    def _fail_at_garbage(self, position: int) -> NoReturn:
        blank = _BLANK.match(self._text, position)
        start = blank.end() if blank else position
        rest = self._text[start : start + 2]
        if rest == "/*":
            self._stop(start, "a comment that does not end", hint="close it with */")
        if rest.startswith('"'):
            message = "a string that does not end, or holds a raw line break or tab"
            self._stop(start, message, hint='close it with ", and write \\n or \\t inside it')
        if rest.startswith("'"):
            self._stop(start, "a string in single quotes", hint="JSON wants double quotes")
        if _BARE.match(self._text, start):
            self._stop(start, "a word without quotes", hint="texts and keys stand in double quotes")
        self._stop(start, f"the character {rest[:1]!a} has no place here")

    def _stop(self, offset: int, message: str, *, hint: str | None = None) -> NoReturn:
        line, column = self._places.position(offset)
        problem = Problem(
            f"not valid JSON at column {column}: {message}", file=self._file, line=line, hint=hint
        )
        raise ConfigError([*self._duplicates, problem])
