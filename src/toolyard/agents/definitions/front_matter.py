"""An agent's front matter: YAML for all keys but ``tools``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from toolyard.agents.definitions.tool_patterns import is_tools_line, read_tools
from toolyard.agents.definitions.yaml_keys import Entry, NoYaml, Value, read_yaml
from toolyard.errors import Problem

__all__ = ["KEYS", "Matter", "read_matter"]

KEYS = ("description", "model", "temperature", "tools", "bundles", "mode", "max_steps")
NAME = "name"
WARMEST = 2.0

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COUNT = re.compile(r"[0-9]{1,9}")


@dataclass(slots=True)
class Matter:
    """What the keys say, what is wrong with them, and what is worth a hint."""

    name: str | None = None
    description: str = ""
    model: str | None = None
    temperature: float | None = None
    tools: tuple[str, ...] | None = None
    bundles: tuple[str, ...] = ()
    mode: Literal["direct", "meta"] | None = None
    max_steps: int | None = None
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def read_matter(lines: Sequence[str], first_line: int, file: str | None, *, named: bool) -> Matter:
    """Read the lines between the dashes. Never raises: what is wrong is in ``problems``.

    ``named`` tells whether a heading has named the agent already; otherwise the key ``name`` does.
    """
    reader = _Reader(first_line, file, named)
    reader.read_keys(reader.read_tools(lines))
    return reader.matter


class _Reader:
    """Collects into one ``Matter``. Lines are counted from 0 here, from the first between the dashes."""

    def __init__(self, first_line: int, file: str | None, named: bool) -> None:
        self.matter = Matter()
        self._first_line = first_line
        self._file = file
        self._named = named
        self._seen: dict[str, int] = {}

    def read_tools(self, lines: Sequence[str]) -> str:
        """Take the tools out; what is left is YAML, with every line in its place."""
        left = list(lines)
        at = 0
        while at < len(lines):
            if not is_tools_line(lines[at]):
                at += 1
                continue
            self._once("tools", at)
            read = read_tools(lines, at)
            for each in read.complaints:
                self._wrong(each.at, "tools", each.message, each.hint)
            self.matter.tools = tuple(read.items)
            left[at : read.end] = [""] * (read.end - at)
            at = read.end
        return "\n".join(left)

    def read_keys(self, text: str) -> None:
        entries = read_yaml(text)
        if isinstance(entries, NoYaml):
            hint = "put a text that holds a colon, a # or a * in quotes"
            self._wrong(entries.line, "", f"the front matter is no YAML: {entries.message}", hint)
            return
        for entry in entries:
            self._once(entry.key, entry.line)
            self._read(entry)

    def _read(self, entry: Entry) -> None:
        key, read = entry.key, _READERS.get(entry.key)
        if key == NAME and self._named:
            self._worth_a_hint(entry.line, key, "the heading names the agent, so this name is ignored")
        elif key == "tools":
            self._wrong(entry.line, key, "tools must stand at the beginning of a line")
        elif read is None:
            similar = get_close_matches(key, KEYS, n=1, cutoff=0.5)
            hint = f"did you mean '{similar[0]}'?" if similar else f"there are {', '.join(KEYS)}"
            self._worth_a_hint(entry.line, key, "an unknown key, which is ignored", hint)
        else:
            expected = read(self.matter, entry.value)
            if expected is not None:
                self._wrong(entry.value.line, key, f"expected {expected}, found {entry.value}")

    def _once(self, key: str, at: int) -> None:
        if key in self._seen:
            first = self._seen[key] + self._first_line
            self._wrong(at, key, f"the key stands twice, first on line {first}", "keep one of the two")
        self._seen.setdefault(key, at)

    def _wrong(self, at: int, key: str, message: str, hint: str | None = None) -> None:
        self.matter.problems.append(Problem(message, self._file, self._first_line + at, key, hint))

    def _worth_a_hint(self, at: int, key: str, message: str, hint: str | None = None) -> None:
        self.matter.hints.append(Problem(message, self._file, self._first_line + at, key, hint))


# Each takes its value over, or says what it expected instead.


def _name(matter: Matter, value: Value) -> str | None:
    matter.name = value.text or None
    return None if value.text else "a name"


def _description(matter: Matter, value: Value) -> str | None:
    matter.description = value.text or ""
    return "a text" if value.text is None else None


def _model(matter: Matter, value: Value) -> str | None:
    matter.model = value.text or None
    return "the name of a model" if value.text is None else None


def _temperature(matter: Matter, value: Value) -> str | None:
    if value.text and not value.quoted and _NUMBER.fullmatch(value.text):
        number = float(value.text)
        if 0 <= number <= WARMEST:
            matter.temperature = number
            return None
    return f"a number from 0 to {WARMEST:g}"


def _max_steps(matter: Matter, value: Value) -> str | None:
    if value.text and not value.quoted and _COUNT.fullmatch(value.text) and int(value.text) > 0:
        matter.max_steps = int(value.text)
        return None
    return "a whole number from 1 on"


def _mode(matter: Matter, value: Value) -> str | None:
    if value.text == "direct" or value.text == "meta":
        matter.mode = value.text
        return None
    return "direct or meta"


def _bundles(matter: Matter, value: Value) -> str | None:
    ids = [item.text for item in value.items or () if item.text]
    if value.items is None or len(ids) < len(value.items):
        return "a list of bundles, each by its id"
    matter.bundles = tuple(ids)
    return None


_READERS: dict[str, Callable[[Matter, Value], str | None]] = {
    NAME: _name,
    "description": _description,
    "model": _model,
    "temperature": _temperature,
    "max_steps": _max_steps,
    "mode": _mode,
    "bundles": _bundles,
}
