"""Comparison of a server's current tools with the accepted ones, and diffs for people.

Both sides are untrusted text of arbitrary size, so every comparison has a limit on its work and its output.
"""

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
from toolyard.types.tool import JsonObject, ValidatedListing
from toolyard.types.visible_text import visible

__all__ = [
    "Change",
    "ChangeKind",
    "apply_changes",
    "build_pins",
    "common_end_lengths",
    "compare_pins",
    "detect_renames",
    "diff_definitions",
    "diff_text",
    "select_changes",
]


_MAX_LINE_CHARS = 2_000
_CONTEXT_CHARS = 60
"""Number of characters shown before and after a difference in a long text."""
_MAX_DIFF_LINES = 200
_MAX_LINES_PER_SIDE = 90
"""Maximum number of lines per text if two texts are shown one after the other."""
_MAX_COMPARED_LINE_PAIRS = 1_000_000
"""Maximum product of both line counts for a real diff. Its time grows with this product, and a server must
not be able to block others with a long text; beyond it the order of lines is ignored."""
_MAX_DIFF_DEPTH = 60


def diff_definitions(before: JsonObject, after: JsonObject) -> list[str]:
    """Return one line per difference between two definitions, or the changed lines of multi-line texts."""
    lines: list[str] = []
    for line in _diff_values(before, after, "", 0):
        if len(lines) >= _MAX_DIFF_LINES:
            lines.append("… and more")
            break
        lines.append(line)
    return lines


def diff_text(before: str, after: str) -> list[str]:
    """Return a unified diff with one line of context, limited to the first ``_MAX_DIFF_LINES`` lines."""
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
    diff = difflib.unified_diff(one, other, lineterm="", n=1)
    # Skip the two header lines by position: a line of the text itself may start with "++" or "--".
    lines = [_truncate_line(line) for line in islice(diff, 2, None) if not line.startswith("@@")]
    return lines if len(lines) <= _MAX_DIFF_LINES else [*lines[:_MAX_DIFF_LINES], "… and more"]


def _find_missing_lines(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the lines that do not occur in ``others``, or occur there less often. Takes linear time."""
    surplus = Counter(others)
    surplus.subtract(lines)
    missing: list[str] = []
    for line in reversed(lines):
        if surplus[line] < 0:
            surplus[line] += 1
            missing.append(line)
    return missing[::-1]


def _format_side(sign: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (_truncate_line(f"{sign}{line}") for line in lines[:_MAX_LINES_PER_SIDE])
    if len(lines) > _MAX_LINES_PER_SIDE:
        yield f"… and {len(lines) - _MAX_LINES_PER_SIDE:,} more lines"


def _diff_values(before: object, after: object, path: str, depth: int) -> Iterator[str]:
    if depth < _MAX_DIFF_DEPTH and isinstance(before, Mapping) and isinstance(after, Mapping):
        # No comparison of the whole objects first: each level would serialize everything below it again.
        yield from _diff_objects(cast("JsonObject", before), cast("JsonObject", after), path, depth)
    elif _dump_json(cast("object", before)) == _dump_json(after):
        # Compared as JSON, since 1 == True in Python.
        return
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        lines = diff_text(before, after)
        yield f"~ {path}:" if lines else f"~ {path}: only the line endings differ"
        yield from (f"    {line}" for line in lines)
    elif isinstance(before, str) and isinstance(after, str):
        one, other = _crop_to_difference(before, after)
        yield f"- {path}: {_format_value(one)}"
        yield f"+ {path}: {_format_value(other)}"
    else:
        yield f"- {path}: {_format_value(cast('object', before))}"
        yield f"+ {path}: {_format_value(cast('object', after))}"


def _diff_objects(before: JsonObject, after: JsonObject, path: str, depth: int) -> Iterator[str]:
    for key in sorted({*before, *after}):
        key_path = f"{path}.{key}" if path else key
        if key not in before:
            yield f"+ {key_path}: {_format_value(after[key])}"
        elif key not in after:
            yield f"- {key_path}: {_format_value(before[key])}"
        else:
            yield from _diff_values(before[key], after[key], key_path, depth + 1)


def _crop_to_difference(before: str, after: str) -> tuple[str, str]:
    """Return both texts, or of long texts the different part, so that truncation cannot hide it."""
    if max(len(before), len(after)) <= _MAX_LINE_CHARS:
        return before, after
    start, tail = common_end_lengths(before, after)
    return _crop_text(before, start, tail), _crop_text(after, start, tail)


def common_end_lengths(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the common prefix and, of the rest, the common suffix of two sequences."""
    shorter = min(len(before), len(after))
    start = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    shorter -= start
    return start, next((n for n in range(shorter) if before[-1 - n] != after[-1 - n]), shorter)


def _crop_text(text: str, start: int, tail: int) -> str:
    first, last = max(0, start - _CONTEXT_CHARS), len(text) - max(0, tail - _CONTEXT_CHARS)
    return f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"


def _format_value(value: object) -> str:
    return _truncate_line(_dump_json(value))


def _dump_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _truncate_line(line: str) -> str:
    # Make invisible characters visible: they may be the only difference.
    printable = visible(line, spaces=True).replace("\t", "\\t").replace("\n", "\\n")
    return (
        printable
        if len(printable) <= _MAX_LINE_CHARS
        else f"{printable[:_MAX_LINE_CHARS]}… ({len(printable):,} characters)"
    )


_MIN_SIMILARITY = 0.8
_MAX_COMPARED_CHARS = 2_000
"""Number of characters of a description used to detect renamed tools."""
_MAX_COMPARED_DESCRIPTIONS = 20_000
"""Maximum number of pairs of descriptions to compare, so that a server with thousands of tools cannot block
others. Tools beyond it are reported as new instead of renamed, which is just as safe."""


def detect_renames(added: Mapping[str, Pin], missing: Mapping[str, Pin]) -> dict[str, str]:
    """Return the accepted names of renamed tools by their new names.

    A tool is renamed if a new tool and a missing one are equal apart from the name, or have the same input
    schema and similar descriptions. The time is bounded, independent of the contents.
    """
    if not added or not missing:
        return {}
    renames = _match_identical(added, missing)
    unmatched = {name: pin for name, pin in missing.items() if name not in renames.values()}
    renames.update(
        _match_similar({name: pin for name, pin in added.items() if name not in renames}, unmatched)
    )
    return renames


def _match_identical(added: Mapping[str, Pin], missing: Mapping[str, Pin]) -> dict[str, str]:
    by_body: dict[str, list[str]] = {}
    for name, pin in missing.items():
        by_body.setdefault(pin.body_hash, []).append(name)
    renames: dict[str, str] = {}
    for name, pin in added.items():
        if names := by_body.get(pin.body_hash):
            renames[name] = names.pop(0)
    return renames


def _match_similar(added: Mapping[str, Pin], missing: Mapping[str, Pin]) -> dict[str, str]:
    by_schema: dict[str, dict[str, Counter[str]]] = {}
    for name, pin in missing.items():
        if words := _count_words(pin):
            by_schema.setdefault(pin.schema_hash, {})[name] = words
    renames: dict[str, str] = {}
    remaining_pairs = _MAX_COMPARED_DESCRIPTIONS
    for name, pin in added.items():
        words, candidates = _count_words(pin), by_schema.get(pin.schema_hash, {})
        remaining_pairs -= len(candidates)
        if remaining_pairs < 0:
            break
        was = next(
            (
                old_name
                for old_name, old_words in candidates.items()
                if words and _word_similarity(words, old_words) >= _MIN_SIMILARITY
            ),
            None,
        )
        if was is not None:
            renames[name] = was
            del candidates[was]
    return renames


def _count_words(pin: Pin) -> Counter[str]:
    return Counter(str(pin.definition.get("description", ""))[:_MAX_COMPARED_CHARS].split())


def _word_similarity(one: Counter[str], other: Counter[str]) -> float:
    """Return the Dice coefficient of two multisets of words, from 0 to 1."""
    return 2 * (one & other).total() / (one.total() + other.total())


class ChangeKind(StrEnum):
    """Kind of a difference between a server's current and accepted state."""

    NEW = "new"
    """A tool that was never accepted."""
    CHANGED = "changed"
    """A tool whose definition differs from the accepted one."""
    RENAMED = "renamed"
    """A tool that was accepted under another name, which no longer exists."""
    REMOVED = "removed"
    """An accepted tool that the server no longer has."""
    INSTRUCTIONS = "instructions"
    """The server's instructions."""
    PACKAGE = "package"
    """The package that the server's command downloads."""


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. ``tool`` is the tool's current name, ``was`` the accepted name of a renamed tool."""

    kind: ChangeKind
    server_id: str
    tool: str = ""
    was: str = ""
    before: Pin | None = None
    after: Pin | None = None
    texts: tuple[str, str] = ("", "")

    @property
    def id(self) -> str:
        """Id for accepting the change: the tool's canonical id, or the server's id."""
        return f"{self.server_id}/{self.tool}" if self.tool else self.server_id

    @property
    def key(self) -> str:
        """Hash of both sides of the difference. Accepting by key accepts exactly what was shown."""
        hashes = [pin.hash if pin is not None else "" for pin in (self.before, self.after)]
        text = json.dumps([self.kind.value, self.tool, self.was, *hashes, *self.texts], ensure_ascii=True)
        return sha256(text.encode("ascii")).hexdigest()[:24]

    @property
    def blocks(self) -> bool:
        """True if the tool stays in quarantine until the change is accepted."""
        return self.kind in (ChangeKind.NEW, ChangeKind.CHANGED, ChangeKind.RENAMED)

    @property
    def reason(self) -> str:
        """Reason for quarantine, without text from the server apart from the accepted name."""
        return {
            ChangeKind.NEW: "it is new and has not been accepted",
            ChangeKind.CHANGED: "its definition has changed since it was accepted",
            ChangeKind.RENAMED: f"it was accepted as '{self.was}' and has been renamed",
            ChangeKind.REMOVED: "the server no longer has it",
            ChangeKind.INSTRUCTIONS: "the server's instructions have changed since they were accepted",
            ChangeKind.PACKAGE: "its command runs a different package than the accepted one",
        }[self.kind]

    def diff(self) -> list[str]:
        """Return the difference as lines for people. They contain text from the server."""
        if self.kind in (ChangeKind.INSTRUCTIONS, ChangeKind.PACKAGE):
            return diff_text(*self.texts)
        return diff_definitions(_definition_or_empty(self.before), _definition_or_empty(self.after))


def _definition_or_empty(pin: Pin | None) -> JsonObject:
    return {} if pin is None else pin.definition


def build_pins(contents: ValidatedListing, package: str | None = None) -> ServerPins:
    """Return pins of all current tools of a server."""
    tools = {definition.name: Pin.from_definition(definition) for definition in contents.definitions}
    return ServerPins(tools, contents.listing.instructions or None, package)


def compare_pins(server_id: str, current: ServerPins, locked: ServerPins | None) -> list[Change]:
    """Return all changes, sorted by tool. ``locked`` is None for a server that is not in the lock."""
    accepted = locked or ServerPins()
    changes = [
        Change(ChangeKind.CHANGED, server_id, name, before=accepted.tools[name], after=pin)
        for name, pin in current.tools.items()
        if name in accepted.tools and accepted.tools[name].hash != pin.hash
    ]
    added = {name: pin for name, pin in current.tools.items() if name not in accepted.tools}
    missing = {name: pin for name, pin in accepted.tools.items() if name not in current.tools}
    renames = detect_renames(added, missing)
    for name, pin in added.items():
        was = renames.get(name)
        if was is None:
            changes.append(Change(ChangeKind.NEW, server_id, name, after=pin))
        else:
            changes.append(Change(ChangeKind.RENAMED, server_id, name, was, missing.pop(was), pin))
    changes += [Change(ChangeKind.REMOVED, server_id, name, before=pin) for name, pin in missing.items()]
    changes.sort(key=lambda change: change.tool)
    if locked is not None:
        changes += _compare_server_fields(server_id, current, locked)
    return changes


def apply_changes(locked: ServerPins | None, current: ServerPins, changes: Iterable[Change]) -> ServerPins:
    """Return the pins of a server after accepting exactly these changes."""
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
        instructions, package = current.instructions, current.package
    return ServerPins(tools, instructions, package)


def select_changes(changes: Iterable[Change], keys: Collection[str]) -> list[Change]:
    """Return the changes with these keys. Raise Outdated if a key matches no change, or without keys."""
    by_key = {change.key: change for change in changes}
    if not keys or not by_key.keys() >= set(keys):
        raise Outdated(
            "the definitions have changed since you reviewed them, so nothing was accepted",
            hint="review the changes again",
        )
    return [change for key, change in by_key.items() if key in keys]


def _compare_server_fields(server_id: str, current: ServerPins, locked: ServerPins) -> Iterable[Change]:
    if (current.instructions or "") != (locked.instructions or ""):
        yield Change(
            ChangeKind.INSTRUCTIONS, server_id, texts=(locked.instructions or "", current.instructions or "")
        )
    if (current.package or "") != (locked.package or ""):
        yield Change(ChangeKind.PACKAGE, server_id, texts=(locked.package or "", current.package or ""))
