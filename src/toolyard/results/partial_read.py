"""Parts of what is kept: a range, the lines with certain words, a place in its JSON.

Bytes are read as text where they are some, and else shown in hexadecimal digits.

What is looked for is plain words and never a pattern: a pattern of a model's making could keep us busy for
hours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from toolyard.results.json_path import PathNotFound, PathSyntaxError, find_at_path
from toolyard.results.readable_json import to_readable_json
from toolyard.results.result_store import StoredResult
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.results.value_count import has_more_values
from toolyard.types.server import Trust

__all__ = ["ResultExcerpt", "ResultReadError", "read_lines", "read_path", "read_range"]

_LONGEST_JSON = 8_000_000
_MOST_VALUES = 200_000
"""Characters and values of JSON in which a path is looked up: decoding more would stop everything else."""
_MAX_LINE_CHARS = 400
_CONTEXT_CHARS = 120
_MAX_LINES = 100
_HEX_ROW_BYTES = 16
_HEX_ROW_CHARS = len("00000000  \n") + 3 * _HEX_ROW_BYTES - 1
_MAX_HEX_DUMP_CHARS = 4_000
"""Characters of bytes in hexadecimal digits: more would cost much and tell little."""


class ResultReadError(ValueError):
    """The part cannot be shown; the words say why."""


@dataclass(frozen=True, slots=True)
class ResultExcerpt:
    """What was found. ``text`` is fenced where the server is not trusted.

    ``total`` counts characters, or for ``read_lines`` the lines found, or for what is no text the bytes.
    ``next_offset`` is where the rest begins; None where there is none. ``note`` says what is shown, where it
    is no text.
    """

    text: str
    total: int
    next_offset: int | None = None
    note: str | None = None


def read_range(result: StoredResult, offset: int, length: int) -> ResultExcerpt:
    """The text from ``offset`` on, at most ``length`` characters with any fence. Of what is no text, bytes
    from ``offset`` on, in hexadecimal digits and no more than a reader has use for."""
    text = result.text
    return _dump_hex(result, offset, length) if text is None else _cut_range(result, text, offset, length)


def read_path(result: StoredResult, path: str, offset: int, length: int) -> ResultExcerpt:
    """What stands at a path in the text's JSON, as JSON. Raises Unreadable."""
    text = _require_text(result)
    if len(text) > _LONGEST_JSON:
        raise ResultReadError(f"the result is longer than {_LONGEST_JSON:,} characters: read a range of it")
    if has_more_values(text, _MOST_VALUES):
        raise ResultReadError(f"the result has more than {_MOST_VALUES:,} values: read a range of it")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ResultReadError("the result is no JSON: read a range of it, or look for words") from None
    try:
        return _cut_range(result, to_readable_json(find_at_path(value, path)), offset, length)
    except PathSyntaxError as error:
        raise ResultReadError(str(error)) from None
    except PathNotFound as error:
        # It names keys, which are the server's words too.
        raise ResultReadError(_fence_if_untrusted(result, str(error))) from None


def read_lines(result: StoredResult, words: str, offset: int, length: int) -> ResultExcerpt:
    """The lines that hold these words, each with its number; ``offset`` counts such lines.

    Capitals count only where the words have some. A long line is cut around the words.
    """
    if not words.strip():
        raise ResultReadError("there are no words to look for")
    text = _require_text(result)
    room = length - _reserved_fence_chars(result)
    exact = words != words.casefold()
    found: list[str] = []
    total = taken = 0
    for number, line in enumerate(text.split("\n"), 1):
        place = line.find(words) if exact else line.casefold().find(words)
        if place < 0:
            continue
        total += 1
        if total <= offset or len(found) >= _MAX_LINES:
            continue
        place = place if exact else _original_position(line, place)
        shown = f"{number}: {_crop_line(line, place, len(words))}"
        if taken + len(shown) + 1 > room and found:
            continue
        if total == offset + len(found) + 1:
            found.append(shown[: max(room, 0)])
            taken += len(shown) + 1
    if total == 0:
        return ResultExcerpt("", 0)
    after = offset + len(found)
    return ResultExcerpt(
        _fence_if_untrusted(result, "\n".join(found)), total, after if after < total else None
    )


def _require_text(result: StoredResult) -> str:
    if (text := result.text) is None:
        raise ResultReadError(f"the result is no text ({result.mime}): only a range of it can be read")
    return text


def _dump_hex(result: StoredResult, offset: int, length: int) -> ResultExcerpt:
    data = result.body if isinstance(result.body, bytes) else b""
    room = min(length, _MAX_HEX_DUMP_CHARS) - _reserved_fence_chars(result)
    start = min(max(offset, 0), len(data))
    end = min(start + max(1, room // _HEX_ROW_CHARS) * _HEX_ROW_BYTES, len(data))
    rows = (
        f"{at:08x}  {data[at : min(at + _HEX_ROW_BYTES, end)].hex(' ')}"
        for at in range(start, end, _HEX_ROW_BYTES)
    )
    note = (
        f"no text but {result.mime}: these are bytes in hexadecimal digits, and offset and total count bytes"
    )
    text = _fence_if_untrusted(result, "\n".join(rows)) if end > start else ""
    return ResultExcerpt(text, len(data), end if end < len(data) else None, note)


def _original_position(line: str, place: int) -> int:
    """Where a place of the line without capitals stands in the line itself: some letters become several."""
    if line.isascii():
        return place
    start, end = 0, len(line)
    while end - start > 1:
        middle = (start + end) // 2
        length = len(line[start:middle].casefold())
        if place < length:
            end = middle
        else:
            start, place = middle, place - length
    return start


def _crop_line(line: str, place: int, length: int) -> str:
    if len(line) <= _MAX_LINE_CHARS:
        return line
    start, end = (
        max(0, place - _CONTEXT_CHARS),
        min(len(line), place + min(length, _MAX_LINE_CHARS) + _CONTEXT_CHARS),
    )
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _cut_range(result: StoredResult, text: str, offset: int, length: int) -> ResultExcerpt:
    room = max(1, length - _reserved_fence_chars(result))
    start = min(max(offset, 0), len(text))
    end = min(start + room, len(text))
    part = text[start:end]
    return ResultExcerpt(
        _fence_if_untrusted(result, part) if part else "", len(text), end if end < len(text) else None
    )


def _reserved_fence_chars(result: StoredResult) -> int:
    return 0 if result.trust is Trust.TRUSTED else fence_length(result.server)


def _fence_if_untrusted(result: StoredResult, text: str) -> str:
    return text if result.trust is Trust.TRUSTED else fence_untrusted_text(text, result.server)
