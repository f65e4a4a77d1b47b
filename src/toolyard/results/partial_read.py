"""Reading parts of a stored result: a range, the lines that contain some words, or a path in its JSON.

Bytes are read as text if they are valid text, and shown as a hex dump otherwise. The search is for plain
words, not regular expressions: a pattern written by a model could take hours to match.

Paths are a small subset of JSONPath whose cost is proportional to the number of matched values. Filters,
scripts and recursive descent are not supported.

    $.items[0].name      a key, an element; the ``$.`` may be omitted
    $["odd key"].x       a key that is not a plain word
    $.items[-1]          an element counted from the end
    $.items[2:5]         a slice of elements
    $.items[*].name      all elements of an array, or all values of an object
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast

from toolyard.results.readable_json import to_readable_json
from toolyard.results.result_store import StoredResult
from toolyard.results.untrusted_text import fence_length, fence_untrusted_text
from toolyard.types.server import Trust

__all__ = [
    "PathNotFound",
    "PathSyntaxError",
    "ResultExcerpt",
    "ResultReadError",
    "find_at_path",
    "has_more_values",
    "read_lines",
    "read_path",
    "read_range",
]


_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def has_more_values(text: str, limit: int) -> bool:
    """Return True if JSON text has more than ``limit`` values. Delimiters inside strings do not count."""
    # Values are counted before decoding, because decoding cannot be interrupted.
    # Counting all delimiters, also inside strings, is fast and enough to rule out most texts.
    if _count_delimiters(text) < limit:
        return False
    outside = position = 0
    for string in _STRING.finditer(text):
        outside += _count_delimiters(text[position : string.start()])
        position = string.end()
        if outside >= limit:
            return True
    return outside + _count_delimiters(text[position:]) >= limit


def _count_delimiters(text: str) -> int:
    """Count commas, colons and opening brackets: each value but the first is preceded by one."""
    return text.count(",") + text.count(":") + text.count("[") + text.count("{")


_MAX_JSON_CHARS = 8_000_000
_MAX_JSON_VALUES = 200_000
"""Maximum length and number of values of JSON to evaluate a path in. Decoding cannot be interrupted, and a
longer text would block all other threads."""
_MAX_LINE_CHARS = 400
_CONTEXT_CHARS = 120
_MAX_LINES = 100
_HEX_ROW_BYTES = 16
_HEX_ROW_CHARS = len("00000000  \n") + 3 * _HEX_ROW_BYTES - 1
_MAX_HEX_DUMP_CHARS = 4_000
"""Maximum length of a hex dump: more would cost many tokens and be of little use."""


class ResultReadError(ValueError):
    """Raised if a part cannot be read. The message is shown to the model."""


@dataclass(frozen=True, slots=True)
class ResultExcerpt:
    """Part of a stored result. ``text`` is fenced if the server is not trusted.

    ``total`` is the number of characters, for ``read_lines`` of matching lines, and for binary data of bytes.
    ``next_offset`` is the offset of the remaining part, None if there is none. ``note`` describes the format
    of binary data.
    """

    text: str
    total: int
    next_offset: int | None = None
    note: str | None = None


def read_range(result: StoredResult, offset: int, length: int) -> ResultExcerpt:
    """Return the text from ``offset``, at most ``length`` characters including a fence.

    For binary data return a hex dump of the bytes from ``offset``.
    """
    text = result.text
    return _dump_hex(result, offset, length) if text is None else _cut_range(result, text, offset, length)


def read_path(result: StoredResult, path: str, offset: int, length: int) -> ResultExcerpt:
    """Return the value at a path in the text's JSON, as JSON. Raise ResultReadError."""
    text = _require_text(result)
    if len(text) > _MAX_JSON_CHARS:
        raise ResultReadError(f"the result is longer than {_MAX_JSON_CHARS:,} characters: read a range of it")
    if has_more_values(text, _MAX_JSON_VALUES):
        raise ResultReadError(f"the result has more than {_MAX_JSON_VALUES:,} values: read a range of it")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ResultReadError("the result is not JSON: read a range of it, or search for words") from None
    try:
        return _cut_range(result, to_readable_json(find_at_path(value, path)), offset, length)
    except PathSyntaxError as error:
        raise ResultReadError(str(error)) from None
    except PathNotFound as error:
        # The message contains keys, which are text from the server.
        raise ResultReadError(_fence_if_untrusted(result, str(error))) from None


def read_lines(result: StoredResult, words: str, offset: int, length: int) -> ResultExcerpt:
    """Return the lines that contain ``words``, each with its number. ``offset`` skips matching lines.

    The search is case-sensitive only if ``words`` has capitals. Long lines are cropped around the match.
    """
    if not words.strip():
        raise ResultReadError("the search text is empty")
    text = _require_text(result)
    max_chars = length - _reserved_fence_chars(result)
    case_sensitive = words != words.casefold()
    excerpts: list[str] = []
    total = used_chars = 0
    for number, line in enumerate(text.split("\n"), 1):
        position = line.find(words) if case_sensitive else line.casefold().find(words)
        if position < 0:
            continue
        total += 1
        if total <= offset or len(excerpts) >= _MAX_LINES:
            continue
        position = position if case_sensitive else _original_position(line, position)
        excerpt = f"{number}: {_crop_line(line, position, len(words))}"
        if used_chars + len(excerpt) + 1 > max_chars and excerpts:
            continue
        # Only consecutive matches: after one that did not fit, a shorter one must not be added, or the next
        # offset would skip the long one.
        if total == offset + len(excerpts) + 1:
            excerpts.append(excerpt[: max(max_chars, 0)])
            used_chars += len(excerpt) + 1
    if total == 0:
        return ResultExcerpt("", 0)
    next_offset = offset + len(excerpts)
    return ResultExcerpt(
        _fence_if_untrusted(result, "\n".join(excerpts)), total, next_offset if next_offset < total else None
    )


def _require_text(result: StoredResult) -> str:
    if (text := result.text) is None:
        raise ResultReadError(
            f"the result is not text ({result.mime}): read a range of it, by offset and length"
        )
    return text


def _dump_hex(result: StoredResult, offset: int, length: int) -> ResultExcerpt:
    data = result.body if isinstance(result.body, bytes) else b""
    max_chars = min(length, _MAX_HEX_DUMP_CHARS) - _reserved_fence_chars(result)
    start = min(max(offset, 0), len(data))
    end = min(start + max(1, max_chars // _HEX_ROW_CHARS) * _HEX_ROW_BYTES, len(data))
    rows = (
        f"{position:08x}  {data[position : min(position + _HEX_ROW_BYTES, end)].hex(' ')}"
        for position in range(start, end, _HEX_ROW_BYTES)
    )
    note = f"binary data ({result.mime}) as a hex dump; offset and total count bytes"
    text = _fence_if_untrusted(result, "\n".join(rows)) if end > start else ""
    return ResultExcerpt(text, len(data), end if end < len(data) else None, note)


def _original_position(line: str, position: int) -> int:
    """Return the index in ``line`` of an index in the case-folded line.

    Case folding can change the length of a line ("ß" becomes "ss"), so this searches by bisection.
    """
    if line.isascii():
        return position
    start, end = 0, len(line)
    while end - start > 1:
        middle = (start + end) // 2
        length = len(line[start:middle].casefold())
        if position < length:
            end = middle
        else:
            start, position = middle, position - length
    return start


def _crop_line(line: str, position: int, length: int) -> str:
    if len(line) <= _MAX_LINE_CHARS:
        return line
    start, end = (
        max(0, position - _CONTEXT_CHARS),
        min(len(line), position + min(length, _MAX_LINE_CHARS) + _CONTEXT_CHARS),
    )
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _cut_range(result: StoredResult, text: str, offset: int, length: int) -> ResultExcerpt:
    max_chars = max(1, length - _reserved_fence_chars(result))
    start = min(max(offset, 0), len(text))
    end = min(start + max_chars, len(text))
    part = text[start:end]
    return ResultExcerpt(
        _fence_if_untrusted(result, part) if part else "", len(text), end if end < len(text) else None
    )


def _reserved_fence_chars(result: StoredResult) -> int:
    return 0 if result.trust is Trust.TRUSTED else fence_length(result.server)


def _fence_if_untrusted(result: StoredResult, text: str) -> str:
    return text if result.trust is Trust.TRUSTED else fence_untrusted_text(text, result.server)


_MAX_PATH_CHARS = 1_000
_MAX_FOUND_VALUES = 100_000
_MAX_SHOWN_KEYS, _MAX_SHOWN_KEY_CHARS = 10, 40
_STEP_PATTERN = re.compile(
    r"""\.?(?P<key>[^\W\d][\w-]*)
    |\.?\[(?P<all>\*)\]
    |\.(?P<each>\*)
    |\.?\[(?P<start>-?\d{1,9})?:(?P<end>-?\d{1,9})?\]
    |\.?\[(?P<at>-?\d{1,9})\]
    |\.?\[(?P<quoted>"(?:[^"\\]|\\.)*"|'[^'\\]*')\]
    """,
    re.VERBOSE,
)


class PathSyntaxError(ValueError):
    """Raised for an invalid path. The message says where the error is."""


class PathNotFound(LookupError):
    """Raised if a path leads to no value. The message says how far it leads, and what is there."""


_Step: TypeAlias = str | int | slice | None
"""A key, a position, a slice of an array, or None for all values."""


def find_at_path(value: object, path: str) -> object:
    """Return the value at a path, or a list of values if the path has a wildcard or a slice.

    Raise PathSyntaxError for an invalid path, and PathNotFound if a path to one value leads nowhere. After a
    wildcard or slice, values without the next step are skipped.
    """
    values: list[object] = [value]
    is_multiple, walked = False, "$"
    for step, step_text in list(_parse_steps(path)):
        is_single = isinstance(step, str | int)
        matches = [inner for each in values for inner in _apply_step(each, step)]
        if not matches and not is_multiple and is_single:
            raise PathNotFound(f"{walked} has no {step_text}: {_describe_value(values[0])}")
        if len(matches) > _MAX_FOUND_VALUES:
            raise PathNotFound(f"{walked}{step_text} matches more than {_MAX_FOUND_VALUES:,} values")
        is_multiple = is_multiple or not is_single
        values, walked = matches, walked + step_text
    return values if is_multiple else values[0]


def _parse_steps(path: str) -> Iterable[tuple[_Step, str]]:
    if len(path) > _MAX_PATH_CHARS:
        raise PathSyntaxError(f"the path has {len(path):,} characters, more than {_MAX_PATH_CHARS:,}")
    text = path.strip()
    position = 1 if text.startswith("$") else 0
    while position < len(text):
        match = _STEP_PATTERN.match(text, position)
        if match is None:
            raise PathSyntaxError(f"invalid path at {text[position : position + 20]!r}")
        yield _parse_step(match), match[0]
        position = match.end()


def _parse_step(match: re.Match[str]) -> _Step:
    if match["key"] is not None:
        return match["key"]
    if match["at"] is not None:
        return int(match["at"])
    if match["all"] or match["each"]:
        return None
    quoted = match["quoted"]
    if quoted is not None:
        if quoted.startswith("'"):
            return quoted[1:-1]
        try:
            return str(json.loads(quoted))
        except ValueError:
            raise PathSyntaxError(f"the key {quoted} is not a valid JSON string") from None
    start, end = match["start"], match["end"]
    return slice(int(start) if start else None, int(end) if end else None)


def _apply_step(value: object, step: _Step) -> list[object]:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        if step is None:
            return list(fields.values())
        return [fields[step]] if isinstance(step, str) and step in fields else []
    if not isinstance(value, list):
        return []
    items = cast("list[object]", value)
    if step is None:
        return items
    if isinstance(step, slice):
        return items[step]
    return [items[step]] if isinstance(step, int) and -len(items) <= step < len(items) else []


def _describe_value(value: object) -> str:
    if isinstance(value, dict):
        keys = [
            json.dumps(str(key), ensure_ascii=False)[:_MAX_SHOWN_KEY_CHARS]
            for key in list(cast("dict[str, object]", value))
        ]
        shown = ", ".join(keys[:_MAX_SHOWN_KEYS]) + (", …" if len(keys) > _MAX_SHOWN_KEYS else "")
        return f"it is an object with the keys {shown}" if keys else "it is an empty object"
    if isinstance(value, list):
        return f"it is an array of {len(cast('list[object]', value)):,}"
    return "it is neither an object nor an array"
