"""What a server has now, held against what was accepted of it."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from typing import cast

from toolyard.catalog.lock.errors import Outdated
from toolyard.catalog.lock.pins import Pin, ServerPins
from toolyard.types.catalog import ValidatedListing
from toolyard.types.tool import JsonObject
from toolyard.types.visible_text import visible

__all__ = [
    "Change",
    "ChangeKind",
    "apply_changes",
    "common_end_lengths",
    "compare_pins",
    "detect_renames",
    "diff_definitions",
    "diff_text",
    "pin_contents",
    "select_changes",
]


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


_MIN_SIMILARITY = 0.8
_MAX_COMPARED_CHARS = 2_000
"""Characters of a description."""
_MAX_COMPARED_DESCRIPTIONS = 20_000
"""Descriptions that are compared at most: a server with thousands of such tools must not hold others up. What
is left over is new, and says no less."""


def detect_renames(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    """The accepted names by the new ones: of tools that are the same but for the name, or nearly. In time
    that grows with their number, whatever they hold."""
    if not fresh or not gone:
        return {}
    found = _match_identical(fresh, gone)
    rest = {name: pin for name, pin in gone.items() if name not in found.values()}
    found.update(_match_similar({name: pin for name, pin in fresh.items() if name not in found}, rest))
    return found


def _match_identical(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    by_body: dict[str, list[str]] = {}
    for name, pin in gone.items():
        by_body.setdefault(pin.body_hash, []).append(name)
    found: dict[str, str] = {}
    for name, pin in fresh.items():
        if names := by_body.get(pin.body_hash):
            found[name] = names.pop(0)
    return found


def _match_similar(fresh: Mapping[str, Pin], gone: Mapping[str, Pin]) -> dict[str, str]:
    by_schema: dict[str, dict[str, Counter[str]]] = {}
    for name, pin in gone.items():
        if words := _count_words(pin):
            by_schema.setdefault(pin.schema_hash, {})[name] = words
    found: dict[str, str] = {}
    pairs = _MAX_COMPARED_DESCRIPTIONS
    for name, pin in fresh.items():
        words, others = _count_words(pin), by_schema.get(pin.schema_hash, {})
        pairs -= len(others)
        if pairs < 0:
            break
        was = next(
            (
                other
                for other, said in others.items()
                if words and _word_similarity(words, said) >= _MIN_SIMILARITY
            ),
            None,
        )
        if was is not None:
            found[name] = was
            del others[was]
    return found


def _count_words(pin: Pin) -> Counter[str]:
    return Counter(str(pin.definition.get("description", ""))[:_MAX_COMPARED_CHARS].split())


def _word_similarity(one: Counter[str], other: Counter[str]) -> float:
    """How many of the words of both are in both, from 0 to 1."""
    return 2 * (one & other).total() / (one.total() + other.total())


class ChangeKind(StrEnum):
    """What became different."""

    NEW = "new"
    """A tool that was never accepted."""
    CHANGED = "changed"
    """A tool whose definition is another than the accepted one."""
    RENAMED = "renamed"
    """A tool that was accepted under another name, which is gone."""
    REMOVED = "removed"
    """An accepted tool that the server no longer has."""
    INSTRUCTIONS = "instructions"
    """What the server says of itself."""
    PACKAGE = "package"
    """Which package the server's command fetches."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``tool`` is the server's name of it now; ``was`` the accepted name of a renamed one."""

    kind: ChangeKind
    server_id: str
    tool: str = ""
    was: str = ""
    before: Pin | None = None
    after: Pin | None = None
    texts: tuple[str, str] = ("", "")

    @property
    def id(self) -> str:
        """What accepts it: the tool's canonical id, or the server's."""
        return f"{self.server_id}/{self.tool}" if self.tool else self.server_id

    @property
    def key(self) -> str:
        """Names the difference to the letter: whoever accepts it accepts what was shown, and nothing else."""
        sides = [pin.hash if pin is not None else "" for pin in (self.before, self.after)]
        said = json.dumps([self.kind.value, self.tool, self.was, *sides, *self.texts], ensure_ascii=True)
        return sha256(said.encode("ascii")).hexdigest()[:24]

    @property
    def blocks(self) -> bool:
        """Whether a tool stays in quarantine for it until it is accepted."""
        return self.kind in (ChangeKind.NEW, ChangeKind.CHANGED, ChangeKind.RENAMED)

    @property
    def reason(self) -> str:
        """One sentence, in our own words."""
        return {
            ChangeKind.NEW: "it is new and was not accepted",
            ChangeKind.CHANGED: "its definition is not the one that was accepted",
            ChangeKind.RENAMED: f"it was accepted as '{self.was}', and was renamed",
            ChangeKind.REMOVED: "the server no longer has it",
            ChangeKind.INSTRUCTIONS: "the server's instructions are not those that were accepted",
            ChangeKind.PACKAGE: "its command fetches another package than the one that was accepted",
        }[self.kind]

    def diff(self) -> list[str]:
        """The difference in lines for people. They hold the server's words."""
        if self.kind in (ChangeKind.INSTRUCTIONS, ChangeKind.PACKAGE):
            return diff_text(*self.texts)
        return diff_definitions(_definition_or_empty(self.before), _definition_or_empty(self.after))


def _definition_or_empty(pin: Pin | None) -> JsonObject:
    return {} if pin is None else pin.definition


def pin_contents(contents: ValidatedListing, package: str | None = None) -> ServerPins:
    """Everything that a server has now, as accepted."""
    tools = {definition.name: Pin.from_definition(definition) for definition in contents.definitions}
    return ServerPins(tools, contents.listing.instructions or None, package)


def compare_pins(server_id: str, now: ServerPins, locked: ServerPins | None) -> list[Change]:
    """All changes, by tool. A server that is not in the lock at all has only new tools."""
    accepted = locked or ServerPins()
    changes = [
        Change(ChangeKind.CHANGED, server_id, name, before=accepted.tools[name], after=pin)
        for name, pin in now.tools.items()
        if name in accepted.tools and accepted.tools[name].hash != pin.hash
    ]
    fresh = {name: pin for name, pin in now.tools.items() if name not in accepted.tools}
    gone = {name: pin for name, pin in accepted.tools.items() if name not in now.tools}
    before = detect_renames(fresh, gone)
    for name, pin in fresh.items():
        was = before.get(name)
        if was is None:
            changes.append(Change(ChangeKind.NEW, server_id, name, after=pin))
        else:
            changes.append(Change(ChangeKind.RENAMED, server_id, name, was, gone.pop(was), pin))
    changes += [Change(ChangeKind.REMOVED, server_id, name, before=pin) for name, pin in gone.items()]
    changes.sort(key=lambda change: change.tool)
    if locked is not None:
        changes += _compare_server_fields(server_id, now, locked)
    return changes


def apply_changes(locked: ServerPins | None, now: ServerPins, changes: Iterable[Change]) -> ServerPins:
    """The lock of a server after somebody accepted these changes, and no others."""
    pins = locked or ServerPins()
    tools, instructions, package = dict(pins.tools), pins.instructions, pins.package
    for change in changes:
        if change.kind is ChangeKind.INSTRUCTIONS:
            instructions = change.texts[1] or None
        elif change.kind is ChangeKind.PACKAGE:
            package = change.texts[1] or None
        else:
            tools.pop(change.was or change.tool, None)
            if change.after is not None:
                tools[change.tool] = change.after
    if locked is None:
        instructions, package = now.instructions, now.package
    return ServerPins(tools, instructions, package)


def select_changes(changes: Iterable[Change], keys: Collection[str]) -> list[Change]:
    """The changes that these keys name. Raises Outdated where one of them names none any more."""
    there = {change.key: change for change in changes}
    if not keys or not there.keys() >= set(keys):
        raise Outdated(
            "what was to be accepted is not what there is now: nothing was accepted",
            hint="look at the changes again",
        )
    return [change for key, change in there.items() if key in keys]


def _compare_server_fields(server_id: str, now: ServerPins, locked: ServerPins) -> Iterable[Change]:
    if (now.instructions or "") != (locked.instructions or ""):
        yield Change(
            ChangeKind.INSTRUCTIONS, server_id, texts=(locked.instructions or "", now.instructions or "")
        )
    if (now.package or "") != (locked.package or ""):
        yield Change(ChangeKind.PACKAGE, server_id, texts=(locked.package or "", now.package or ""))
