"""Parts of what is kept: a range, the lines with certain words, a place in its JSON.

Bytes are read as text where they are some, and else shown in hexadecimal digits.

What is looked for is plain words and never a pattern: a pattern of a model's making could keep us busy for
hours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from toolyard.results.json_path import Missing, PathError, find
from toolyard.results.readable_json import readable
from toolyard.results.result_store import Kept
from toolyard.results.untrusted_text import fence, fence_length
from toolyard.results.value_count import has_more_values
from toolyard.types.server import Trust

__all__ = ["Part", "Unreadable", "read_lines", "read_path", "read_range"]

_LONGEST_JSON = 8_000_000
_MOST_VALUES = 200_000
"""Characters and values of JSON in which a path is looked up: decoding more would stop everything else."""
_LINE = 400
_AROUND = 120
_LINES = 100
_ROW = 16
_DUMPED = len("00000000  \n") + 3 * _ROW - 1
_DUMP = 4_000
"""Characters of bytes in hexadecimal digits: more would cost much and tell little."""


class Unreadable(ValueError):
    """The part cannot be shown; the words say why."""


@dataclass(frozen=True, slots=True)
class Part:
    """What was found. ``text`` is fenced where the server is not trusted.

    ``total`` counts characters, or for ``read_lines`` the lines found, or for what is no text the bytes.
    ``next_offset`` is where the rest begins; None where there is none. ``note`` says what is shown, where it
    is no text.
    """

    text: str
    total: int
    next_offset: int | None = None
    note: str | None = None


def read_range(kept: Kept, offset: int, length: int) -> Part:
    """The text from ``offset`` on, at most ``length`` characters with any fence. Of what is no text, bytes
    from ``offset`` on, in hexadecimal digits and no more than a reader has use for."""
    text = kept.text
    return _dumped(kept, offset, length) if text is None else _cut(kept, text, offset, length)


def read_path(kept: Kept, path: str, offset: int, length: int) -> Part:
    """What stands at a path in the text's JSON, as JSON. Raises Unreadable."""
    text = _text(kept)
    if len(text) > _LONGEST_JSON:
        raise Unreadable(f"the result is longer than {_LONGEST_JSON:,} characters: read a range of it")
    if has_more_values(text, _MOST_VALUES):
        raise Unreadable(f"the result has more than {_MOST_VALUES:,} values: read a range of it")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("the result is no JSON: read a range of it, or look for words") from None
    try:
        return _cut(kept, readable(find(value, path)), offset, length)
    except PathError as error:
        raise Unreadable(str(error)) from None
    except Missing as error:
        # It names keys, which are the server's words too.
        raise Unreadable(_fenced(kept, str(error))) from None


def read_lines(kept: Kept, words: str, offset: int, length: int) -> Part:
    """The lines that hold these words, each with its number; ``offset`` counts such lines.

    Capitals count only where the words have some. A long line is cut around the words.
    """
    if not words.strip():
        raise Unreadable("there are no words to look for")
    text = _text(kept)
    room = length - _fence_room(kept)
    exact = words != words.casefold()
    found: list[str] = []
    total = taken = 0
    for number, line in enumerate(text.split("\n"), 1):
        place = line.find(words) if exact else line.casefold().find(words)
        if place < 0:
            continue
        total += 1
        if total <= offset or len(found) >= _LINES:
            continue
        place = place if exact else _unfolded(line, place)
        shown = f"{number}: {_around(line, place, len(words))}"
        if taken + len(shown) + 1 > room and found:
            continue
        if total == offset + len(found) + 1:
            found.append(shown[: max(room, 0)])
            taken += len(shown) + 1
    if total == 0:
        return Part("", 0)
    after = offset + len(found)
    return Part(_fenced(kept, "\n".join(found)), total, after if after < total else None)


def _text(kept: Kept) -> str:
    if (text := kept.text) is None:
        raise Unreadable(f"the result is no text ({kept.mime}): only a range of it can be read")
    return text


def _dumped(kept: Kept, offset: int, length: int) -> Part:
    data = kept.body if isinstance(kept.body, bytes) else b""
    room = min(length, _DUMP) - _fence_room(kept)
    start = min(max(offset, 0), len(data))
    end = min(start + max(1, room // _DUMPED) * _ROW, len(data))
    rows = (f"{at:08x}  {data[at : min(at + _ROW, end)].hex(' ')}" for at in range(start, end, _ROW))
    note = f"no text but {kept.mime}: these are bytes in hexadecimal digits, and offset and total count bytes"
    text = _fenced(kept, "\n".join(rows)) if end > start else ""
    return Part(text, len(data), end if end < len(data) else None, note)


def _unfolded(line: str, place: int) -> int:
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


def _around(line: str, place: int, length: int) -> str:
    if len(line) <= _LINE:
        return line
    start, end = max(0, place - _AROUND), min(len(line), place + min(length, _LINE) + _AROUND)
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _cut(kept: Kept, text: str, offset: int, length: int) -> Part:
    room = max(1, length - _fence_room(kept))
    start = min(max(offset, 0), len(text))
    end = min(start + room, len(text))
    part = text[start:end]
    return Part(_fenced(kept, part) if part else "", len(text), end if end < len(text) else None)


def _fence_room(kept: Kept) -> int:
    return 0 if kept.trust is Trust.TRUSTED else fence_length(kept.server)


def _fenced(kept: Kept, text: str) -> str:
    return text if kept.trust is Trust.TRUSTED else fence(text, kept.server)
