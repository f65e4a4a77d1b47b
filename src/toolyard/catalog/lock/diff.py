"""A change of a definition, so that a person sees what is different and nothing else."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from toolyard.types.tool import JsonObject
from toolyard.types.visible_text import visible

__all__ = ["common_end_lengths", "diff_definitions", "diff_text"]

_MAX_LINE_CHARS = 2_000
"""Characters of one line."""
_CONTEXT_CHARS = 60
"""Characters before and after what is different in a longer text."""
_MAX_DIFF_LINES = 200
_MAX_LINES_PER_SIDE = 90
"""Lines of each of two texts that are shown one after the other."""
_MAX_COMPARED_LINE_PAIRS = 1_000_000
"""Lines of one text times those of the other, up to which their places count: the time grows with that, and a
server must not be able to hold everybody up."""
_MAX_DIFF_DEPTH = 60


def diff_definitions(before: JsonObject, after: JsonObject) -> list[str]:
    """One line for each place that differs; for texts of several lines, the lines that do."""
    lines: list[str] = []
    for line in _diff_values(before, after, "", 0):
        if len(lines) >= _MAX_DIFF_LINES:
            lines.append("… and more")
            break
        lines.append(line)
    return lines


def diff_text(before: str, after: str) -> list[str]:
    """The lines that were taken out and put in, with one of each around them; of very many the first."""
    one, other = before.splitlines(), after.splitlines()
    start, tail = common_end_lengths(one, other)
    first, last = max(0, start - 1), max(0, tail - 1)
    one, other = one[first : len(one) - last], other[first : len(other) - last]
    if len(one) * len(other) > _MAX_COMPARED_LINE_PAIRS:
        lines = [
            *_format_side("-", _find_missing_lines(one, other)),
            *_format_side("+", _find_missing_lines(other, one)),
        ]
        return lines or ["the same lines in another order"]
    found = difflib.unified_diff(one, other, lineterm="", n=1)
    # Two lines of head, then lines with a sign each: a text's own line may well begin with "++".
    lines = [_truncate_line(line) for line in islice(found, 2, None) if not line.startswith("@@")]
    return lines if len(lines) <= _MAX_DIFF_LINES else [*lines[:_MAX_DIFF_LINES], "… and more"]


def _find_missing_lines(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that are not among the others, or not as often."""
    left = Counter(others)
    left.subtract(lines)
    found: list[str] = []
    for line in reversed(lines):
        if left[line] < 0:
            left[line] += 1
            found.append(line)
    return found[::-1]


def _format_side(sign: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (_truncate_line(f"{sign}{line}") for line in lines[:_MAX_LINES_PER_SIDE])
    if len(lines) > _MAX_LINES_PER_SIDE:
        yield f"… and {len(lines) - _MAX_LINES_PER_SIDE:,} more lines"


def _diff_values(before: object, after: object, place: str, depth: int) -> Iterator[str]:
    if depth < _MAX_DIFF_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        # Not compared as a whole first: each level would write everything below it once more.
        yield from _diff_objects(cast("JsonObject", before), cast("JsonObject", after), place, depth)
    elif _dump_json(cast("object", before)) == _dump_json(after):
        # As JSON, where 1 is not true.
        return
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        lines = diff_text(before, after)
        yield f"~ {place}:" if lines else f"~ {place}: only the ends of its lines"
        yield from (f"    {line}" for line in lines)
    elif isinstance(before, str) and isinstance(after, str):
        one, other = _crop_to_difference(before, after)
        yield f"- {place}: {_format_value(one)}"
        yield f"+ {place}: {_format_value(other)}"
    else:
        yield f"- {place}: {_format_value(cast('object', before))}"
        yield f"+ {place}: {_format_value(cast('object', after))}"


def _diff_objects(before: JsonObject, after: JsonObject, place: str, depth: int) -> Iterator[str]:
    for key in sorted({*before, *after}):
        where = f"{place}.{key}" if place else key
        if key not in before:
            yield f"+ {where}: {_format_value(after[key])}"
        elif key not in after:
            yield f"- {where}: {_format_value(before[key])}"
        else:
            yield from _diff_values(before[key], after[key], where, depth + 1)


def _crop_to_difference(before: str, after: str) -> tuple[str, str]:
    """Two texts; of long ones the part that differs, since it must be seen wherever it stands."""
    if max(len(before), len(after)) <= _MAX_LINE_CHARS:
        return before, after
    start, tail = common_end_lengths(before, after)
    return _crop_text(before, start, tail), _crop_text(after, start, tail)


def common_end_lengths(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many characters of texts, or lines, two have in common at their beginning, and then at their
    end."""
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    most -= start
    return start, next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)


def _crop_text(text: str, start: int, tail: int) -> str:
    first, last = max(0, start - _CONTEXT_CHARS), len(text) - max(0, tail - _CONTEXT_CHARS)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _format_value(value: object) -> str:
    return _truncate_line(_dump_json(value))


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _truncate_line(line: str) -> str:
    # A hidden character may be all that is different.
    printable = visible(line, spaces=True).replace("\t", "\\t").replace("\n", "\\n")
    return (
        printable
        if len(printable) <= _MAX_LINE_CHARS
        else f"{printable[:_MAX_LINE_CHARS]}… ({len(printable):,} characters)"
    )
