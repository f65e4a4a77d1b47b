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

__all__ = ["differences", "shared_ends", "text_difference"]

_VALUE = 2_000
"""Characters of one line."""
_AROUND = 60
"""Characters before and after what is different in a longer text."""
_MOST = 200
_SIDE = 90
"""Lines of each of two texts that are shown one after the other."""
_PAIRS = 1_000_000
"""Lines of one text times those of the other, up to which their places count: the time grows with that, and a
server must not be able to hold everybody up."""
_DEPTH = 60


def differences(before: JsonObject, after: JsonObject) -> list[str]:
    """One line for each place that differs; for texts of several lines, the lines that do."""
    lines: list[str] = []
    for line in _walk(before, after, "", 0):
        if len(lines) >= _MOST:
            lines.append("… and more")
            break
        lines.append(line)
    return lines


def text_difference(before: str, after: str) -> list[str]:
    """The lines that were taken out and put in, with one of each around them; of very many the first."""
    one, other = before.splitlines(), after.splitlines()
    start, tail = shared_ends(one, other)
    first, last = max(0, start - 1), max(0, tail - 1)
    one, other = one[first : len(one) - last], other[first : len(other) - last]
    if len(one) * len(other) > _PAIRS:
        lines = [*_side("-", _missing(one, other)), *_side("+", _missing(other, one))]
        return lines or ["the same lines in another order"]
    found = difflib.unified_diff(one, other, lineterm="", n=1)
    # Two lines of head, then lines with a sign each: a text's own line may well begin with "++".
    lines = [_cut(line) for line in islice(found, 2, None) if not line.startswith("@@")]
    return lines if len(lines) <= _MOST else [*lines[:_MOST], "… and more"]


def _missing(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that are not among the others, or not as often."""
    left = Counter(others)
    left.subtract(lines)
    found: list[str] = []
    for line in reversed(lines):
        if left[line] < 0:
            left[line] += 1
            found.append(line)
    return found[::-1]


def _side(sign: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (_cut(f"{sign}{line}") for line in lines[:_SIDE])
    if len(lines) > _SIDE:
        yield f"… and {len(lines) - _SIDE:,} more lines"


def _walk(before: object, after: object, place: str, depth: int) -> Iterator[str]:
    if depth < _DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        # Not compared as a whole first: each level would write everything below it once more.
        yield from _keys(cast("JsonObject", before), cast("JsonObject", after), place, depth)
    elif _written(cast("object", before)) == _written(after):
        # As JSON, where 1 is not true.
        return
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        lines = text_difference(before, after)
        yield f"~ {place}:" if lines else f"~ {place}: only the ends of its lines"
        yield from (f"    {line}" for line in lines)
    elif isinstance(before, str) and isinstance(after, str):
        one, other = _windows(before, after)
        yield f"- {place}: {_shown(one)}"
        yield f"+ {place}: {_shown(other)}"
    else:
        yield f"- {place}: {_shown(cast('object', before))}"
        yield f"+ {place}: {_shown(cast('object', after))}"


def _keys(before: JsonObject, after: JsonObject, place: str, depth: int) -> Iterator[str]:
    for key in sorted({*before, *after}):
        where = f"{place}.{key}" if place else key
        if key not in before:
            yield f"+ {where}: {_shown(after[key])}"
        elif key not in after:
            yield f"- {where}: {_shown(before[key])}"
        else:
            yield from _walk(before[key], after[key], where, depth + 1)


def _windows(before: str, after: str) -> tuple[str, str]:
    """Two texts; of long ones the part that differs, since it must be seen wherever it stands."""
    if max(len(before), len(after)) <= _VALUE:
        return before, after
    start, tail = shared_ends(before, after)
    return _window(before, start, tail), _window(after, start, tail)


def shared_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many characters of texts, or lines, two have in common at their beginning, and then at their
    end."""
    most = min(len(before), len(after))
    start = next((n for n in range(most) if before[n] != after[n]), most)
    most -= start
    return start, next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)


def _window(text: str, start: int, tail: int) -> str:
    first, last = max(0, start - _AROUND), len(text) - max(0, tail - _AROUND)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _shown(value: object) -> str:
    return _cut(_written(value))


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _cut(line: str) -> str:
    # A hidden character may be all that is different.
    printable = visible(line, spaces=True).replace("\t", "\\t").replace("\n", "\\n")
    return printable if len(printable) <= _VALUE else f"{printable[:_VALUE]}… ({len(printable):,} characters)"
