"""Decode large JSON messages in short steps, so that other tasks of the event loop run in between.

``orjson`` and ``json`` hold the interpreter lock until a message is decoded, in a thread as well. A few
megabytes of nested containers become gigabytes of objects that way while everything else waits. This decoder
works in steps of a few milliseconds, counts values as it creates them, and stops at a limit. It is slower
than ``orjson``, which still decodes every message for which it is known to be quick.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Generator
from typing import Any, TypeAlias, cast

import orjson

from toolyard.protocol.codec import decode, decode_exactly, may_contain_long_number, parse_integer
from toolyard.protocol.framing import MessageBytes

__all__ = [
    "MAX_MESSAGE_VALUES",
    "MAX_ONE_STEP_BYTES",
    "MessageLimitExceeded",
    "decode_in_steps",
    "decode_message",
]

MAX_ONE_STEP_BYTES = 256 * 1024
"""Messages up to this size are decoded in one step: none takes longer than about 30 ms."""
MAX_MESSAGE_VALUES = 200_000
"""Maximum number of values in one message, including member names."""
MAX_TEXT_BYTES = 128 * 1024 * 1024
"""Maximum memory of one string, in bytes. A single character beyond Latin-1 doubles or quadruples it."""

_MAX_ORJSON_BYTES = 2 * 1024 * 1024
"""Size up to which ``orjson`` may decode a message if it has few values."""
_MAX_DEPTH = 1024
_WINDOW_BYTES = 8 * 1024
"""Number of bytes decoded in one step outside of long strings."""
_TEXT_WINDOW_BYTES = 256 * 1024
"""Number of bytes decoded in one step within a long string."""

# One token at the start of a window. All repetitions are possessive (`*+`, `++`): the expression never
# backtracks, so matching takes linear time for hostile input too. The second alternative matches a whole
# list or object without nested containers, which orjson decodes at once; it is what makes ordinary messages
# fast.
_TOKEN = re.compile(
    rb"""[ \t\n\r]*+(?:
        "([^"\\\x00-\x1f]*+)"
        | ([\[{](?:[^\[\]{}"]++|"[^"\\]*+")*+[\]}])
        | ([\[\]{},:])
        | (-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?+([eE][+-]?[0-9]++)?+)(?![0-9.eE+-])
        | "((?:[^"\\\x00-\x1f]++|\\.)*+)"
        | (true|false|null)
    )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_STRING, _FLAT_CONTAINER, _PUNCTUATION, _NUMBER, _FRACTION, _EXPONENT, _ESCAPED_STRING, _LITERAL = (
    range(1, 9)
)
_WHITESPACE = re.compile(rb"[ \t\n\r]*+")
_STRING_BODY = re.compile(rb'(?:[^"\\]++|\\(?:u[0-9a-fA-F]{4}|[^u]))*+')
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_BEYOND_LATIN_1 = re.compile("[^\x00-\xff]")
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_LITERAL_VALUES = {b"true": True, b"false": False, b"null": None}

_NOTHING, _VALUE, _NAME, _COLON, _COMMA, _LIST_END, _OBJECT_END = 0, 1, 2, 4, 8, 16, 32
"""Bit set of the tokens that may come next."""

Steps: TypeAlias = Generator[None, None, Any]
"""A generator that yields after each step and returns the decoded value."""


class MessageLimitExceeded(ValueError):
    """Raised for a message that may be JSON but exceeds a limit. The text completes "the message …"."""


async def decode_message(data: MessageBytes, *, max_values: int = MAX_MESSAGE_VALUES) -> Any:
    """Decode one JSON value while other tasks run. Raise ValueError, for a limit MessageLimitExceeded."""
    if len(data) <= MAX_ONE_STEP_BYTES:
        return decode(data)
    if len(data) <= _MAX_ORJSON_BYTES and _is_quick(data, max_values):
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            # Perhaps JSON that only the exact decoder accepts, such as a lone surrogate escape.
            await asyncio.sleep(0)
    steps = decode_in_steps(data, max_values=max_values)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


def _is_quick(data: MessageBytes, max_values: int) -> bool:
    """Return True if ``orjson`` decodes this exactly and without creating many values.

    Punctuation within strings is counted too, so some harmless messages take the slower way.
    """
    raw = bytes(data)
    marks = sum(raw.count(mark) for mark in (b",", b"[", b"{", b":"))
    return marks < max_values and not may_contain_long_number(raw)


def decode_in_steps(
    data: MessageBytes,
    *,
    max_values: int = MAX_MESSAGE_VALUES,
    max_text_bytes: int = MAX_TEXT_BYTES,
    window: int = _WINDOW_BYTES,
    text_window: int = _TEXT_WINDOW_BYTES,
) -> Steps:
    """Decode one JSON value, yielding after each step of at most a few milliseconds.

    Accepts what ``codec.decode`` accepts, with the same result. ``window`` and ``text_window`` are the bytes
    of one step, outside and inside of long strings. Raise ValueError or MessageLimitExceeded.
    """
    decoder = _Decoder(memoryview(data), max_values, max_text_bytes, window, text_window)
    yield from decoder.run()
    return decoder.result


class _Decoder:
    """Pushdown automaton over a window of the message. ``_expected`` is the set of tokens that may come next.

    The window is cut at arbitrary places. A token that touches its end may continue in the next window, so it
    is left unread and the next window starts with it. Only long strings and long whitespace can fill a whole
    window; ``_take_long_token`` handles them.
    """

    def __init__(
        self, data: memoryview, max_values: int, max_text_bytes: int, window: int, text_window: int
    ) -> None:
        self.result: Any = None
        self._window = window
        self._text_window = text_window
        self._data = data
        self._values_left = max_values
        self._max_values = max_values
        self._max_text_bytes = max_text_bytes
        self._container: Any = None
        """The innermost open container; None before the value begins and after it has ended."""
        self._outer_containers: list[Any] = []
        self._name = ""
        self._expected = _VALUE

    def run(self) -> Generator[None, None, None]:
        start, size = 0, len(self._data)
        while start < size:
            window = bytes(self._data[start : start + self._window])
            used = self._take_window(window, start + len(window) == size)
            # Nothing was consumed, so the first token is longer than the window. Reading the same window
            # again would never end.
            if used == 0:
                used = yield from self._take_long_token(window, start)
            start += used
            yield
        if self._expected != _NOTHING:
            raise ValueError("not valid JSON: unexpected end")

    def _take_window(self, window: bytes, is_last: bool) -> int:
        """Process the tokens of a window. Return the number of bytes read; a token at its end may
        continue."""
        at, size, match = 0, len(window), _TOKEN.match
        while (token := match(window, at)) is not None:
            end = token.end()
            if end == size and not is_last:
                return at
            kind = token.lastindex
            if kind == _FLAT_CONTAINER:
                self._add_value(self._decode_flat_container(token[_FLAT_CONTAINER]))
            elif kind == _PUNCTUATION:
                self._take_punctuation(token[_PUNCTUATION])
            elif kind == _PLAIN_STRING:
                self._consume_text(str(token[_PLAIN_STRING], "utf-8"))
            elif kind == _NUMBER:
                self._add_value(_parse_number(token))
            elif kind == _ESCAPED_STRING:
                self._consume_text(_decode_text(token[_ESCAPED_STRING]))
            else:
                self._add_value(_LITERAL_VALUES[token[_LITERAL]])
            at = end
        # No token matched. Whitespace up to the end is consumed; anything else is a token that the window
        # cuts off, or an error, which shows when a window begins with it.
        space = _WHITESPACE.match(window, at)
        if space is not None and space.end() == size:
            return size
        if is_last:
            raise ValueError("not valid JSON")
        return at

    def _decode_flat_container(self, raw: bytes) -> Any:
        """Decode a container without nested containers in one call of ``orjson``."""
        value: Any = decode_exactly(raw) if may_contain_long_number(raw) else orjson.loads(raw)
        # The container was bounded by the window, so counting after decoding is early enough.
        self._count_values(len(value) * (2 if raw[:1] == b"{" else 1))
        return value

    def _take_long_token(self, window: bytes, start: int) -> Generator[None, None, int]:
        space = _WHITESPACE.match(window)
        indent = 0 if space is None else space.end()
        if indent:
            return indent
        if window[:1] != b'"':
            raise ValueError("not valid JSON, or a number has too many digits")
        # Only a string may be longer than a window: structure is single bytes, and a number that long is
        # refused.
        text, end = yield from self._decode_long_text(start + 1)
        self._consume_text(text)
        return end - start

    def _decode_long_text(self, start: int) -> Generator[None, None, tuple[str, int]]:
        """Decode a string from its first character at ``start``. Return it and the position after its end."""
        pieces: list[str] = []
        length, width = 0, 1
        while True:
            window = bytes(self._data[start : start + self._text_window])
            quote = window.find(b'"')
            head = window if quote < 0 else window[:quote]
            closed = quote >= 0
            if b"\\" in head:
                # The quote found may be escaped: match escape sequences to find the end.
                body = _STRING_BODY.match(window)
                head = b"" if body is None else body[0]
                closed = window[len(head) : len(head) + 1] == b'"'
            # Never cut a window within a character: the rest of it is read again with the next window.
            if not closed:
                head = _trim_partial_character(head)
                if not head:
                    raise ValueError("not valid JSON: unterminated string")
            piece = _decode_text(head)
            pieces.append(piece)
            length += len(piece)
            # CPython stores all characters of a string with the width of the widest one. So one emoji in 60
            # MB of ASCII needs 240 MB, and the check must run before the pieces are joined.
            width = _widest_character_bytes(piece, width)
            if length * width > self._max_text_bytes:
                raise MessageLimitExceeded(
                    f"contains a string that would take more than {self._max_text_bytes:,} bytes of memory"
                )
            start += len(head)
            if closed:
                return "".join(pieces), start + 1
            yield

    def _consume_text(self, text: str) -> None:
        if self._expected & _NAME:
            self._count_values(1)
            self._name = text
            self._expected = _COLON
        else:
            self._add_value(text)

    def _take_punctuation(self, mark: bytes) -> None:
        if mark == b",":
            self._require_token(_COMMA)
            self._expected = _NAME if type(self._container) is dict else _VALUE
        elif mark == b":":
            self._require_token(_COLON)
            self._expected = _VALUE
        elif mark == b"[":
            self._begin_container([], _VALUE | _LIST_END)
        elif mark == b"{":
            self._begin_container({}, _NAME | _OBJECT_END)
        else:
            self._require_token(_LIST_END if mark == b"]" else _OBJECT_END)
            self._container = self._outer_containers.pop()
            self._expected = self._tokens_after_value()

    def _begin_container(self, container: Any, expected: int) -> None:
        self._add_value(container)
        # That of orjson, so that the size of a message, which selects the decoder, does not decide whether it
        # is valid.
        if len(self._outer_containers) == _MAX_DEPTH:
            raise ValueError("the JSON is nested too deeply")
        self._outer_containers.append(self._container)
        self._container, self._expected = container, expected

    def _add_value(self, value: Any) -> None:
        self._require_token(_VALUE)
        self._count_values(1)
        container = self._container
        if type(container) is list:
            cast("list[Any]", container).append(value)
        elif container is None:
            self.result = value
        else:
            container[self._name] = value
        self._expected = self._tokens_after_value()

    def _tokens_after_value(self) -> int:
        if self._container is None:
            return _NOTHING
        return _COMMA | (_LIST_END if type(self._container) is list else _OBJECT_END)

    def _require_token(self, token: int) -> None:
        if not self._expected & token:
            raise ValueError("not valid JSON: unexpected token")

    def _count_values(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise MessageLimitExceeded(f"has more than {self._max_values:,} values")


def _parse_number(token: re.Match[bytes]) -> int | float:
    text = token[_NUMBER]
    if token[_FRACTION] is None and token[_EXPONENT] is None:
        return parse_integer(text.decode("ascii"))
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _decode_text(raw: bytes) -> str:
    quoted = b'"%b"' % raw
    try:
        return orjson.loads(quoted)
    except orjson.JSONDecodeError:
        # A lone surrogate escape, which orjson refuses.
        return decode_exactly(quoted)


def _trim_partial_character(head: bytes) -> bytes:
    """Cut off an incomplete character at the end: a UTF-8 sequence, or the first half of a surrogate pair."""
    end = len(head)
    while end and end > len(head) - 4 and head[end - 1] & 0xC0 == 0x80:
        end -= 1
    if end and head[end - 1] >= 0xC0:
        return head[: end - 1]
    before = head[:-6]
    if before and _HIGH_SURROGATE.fullmatch(head[-6:]) and _ends_between_escapes(before):
        return before
    return head


def _ends_between_escapes(text: bytes) -> bool:
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 0


def _widest_character_bytes(piece: str, width: int) -> int:
    """Return the bytes per character that CPython needs for a string with this piece and others of
    ``width``."""
    if width == 1 and not piece.isascii() and _BEYOND_LATIN_1.search(piece):
        width = 2
    return 4 if width == 2 and _BEYOND_BMP.search(piece) else width
