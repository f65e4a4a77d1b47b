"""Parse an agent's front matter: YAML for all keys except ``tools``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, cast

from toolyard.agents.definitions.tools_list import is_tools_line, parse_tool_list
from toolyard.errors import Problem

__all__ = [
    "FRONT_MATTER_KEYS",
    "MAX_STEPS",
    "MAX_TEMPERATURE",
    "FrontMatter",
    "YamlEntry",
    "YamlProblem",
    "YamlValue",
    "parse_front_matter",
    "parse_yaml_mapping",
]


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """Reason why a text is not a valid YAML mapping. ``line`` counts from 0."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class YamlValue:
    """Value of a key: text, a list of values, or neither for any other value."""

    line: int
    text: str | None = None
    is_quoted: bool = False
    items: tuple[YamlValue, ...] | None = None

    def __str__(self) -> str:
        if self.text is None:
            return "an object" if self.items is None else "a list"
        return f"'{self.text:.60}'" if self.text else "nothing"


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """A key with its value. Lines count from 0."""

    key: str
    line: int
    value: YamlValue


_MAX_YAML_CHARACTERS = 100_000
"""Maximum length of front matter, without its list of tools: PyYAML takes seconds for a megabyte."""


def parse_yaml_mapping(text: str) -> list[YamlEntry] | YamlProblem:
    """Return the keys of a YAML mapping in order, including duplicates. Never raises."""
    if len(text) > _MAX_YAML_CHARACTERS:
        return YamlProblem(0, f"it has more than {_MAX_YAML_CHARACTERS:,} characters")
    # PyYAML is slow to import, and only files with agents need it.
    import yaml

    compose = cast(Any, yaml).compose
    try:
        # Compose nodes instead of loading values: nodes have line numbers, and constructing values from tags
        # can raise anything.
        root = compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        return YamlProblem(mark.line if mark else 0, message)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return YamlProblem(0, str(error).partition("\n")[0] or type(error).__name__)
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        return YamlProblem(_node_line(root), "expected one 'key: value' per line")
    pairs = cast(list[tuple[Any, Any]], root.value)
    for key, _ in pairs:
        if not isinstance(key.value, str):
            return YamlProblem(_node_line(key), "a key must be text, not a list or an object")
    return [YamlEntry(key.value, _node_line(key), _convert_node(value)) for key, value in pairs]


def _convert_node(node: Any, *, is_nested: bool = False) -> YamlValue:
    node_value: object = node.value
    if isinstance(node_value, str):
        return YamlValue(_node_line(node), text=node_value.strip(), is_quoted=node.style is not None)
    if node.id == "sequence" and not is_nested:
        return YamlValue(
            _node_line(node),
            items=tuple(_convert_node(item, is_nested=True) for item in cast(list[Any], node_value)),
        )
    return YamlValue(_node_line(node))


def _node_line(node: Any) -> int:
    return cast(int, node.start_mark.line)


FRONT_MATTER_KEYS = (
    "description",
    "model",
    "temperature",
    "tools",
    "bundles",
    "mode",
    "max_steps",
    "starters",
)
NAME_KEY = "name"
MAX_TEMPERATURE = 2.0
MAX_STEPS = 999_999_999

_NUMBER_PATTERN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COUNT_PATTERN = re.compile(r"[0-9]{1,9}")


@dataclass(slots=True)
class FrontMatter:
    """Values of the keys, which are named as the fields of ``Agent``, with problems and hints about them."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])


def parse_front_matter(
    lines: Sequence[str], first_line: int, file: str | None, *, has_heading_name: bool
) -> FrontMatter:
    """Parse the lines between the dashes. Never raises; errors are in ``problems``.

    ``has_heading_name`` means that a heading names the agent; otherwise the key ``name`` does.
    """
    reader = _FrontMatterReader(first_line, file, has_heading_name)
    reader.parse_keys(reader.extract_tools(lines))
    return reader.front_matter


class _FrontMatterReader:
    """Collects values into one ``FrontMatter``. Lines count from 0, starting after the opening dashes."""

    def __init__(self, first_line: int, file: str | None, has_heading_name: bool) -> None:
        self.front_matter = FrontMatter()
        self._first_line = first_line
        self._file = file
        self._has_heading_name = has_heading_name
        self._first_line_by_key: dict[str, int] = {}

    def extract_tools(self, lines: Sequence[str]) -> str:
        """Parse and blank out the ``tools`` lines; the rest is YAML with unchanged line numbers."""
        yaml_lines = list(lines)
        at = 0
        while at < len(lines):
            if not is_tools_line(lines[at]):
                at += 1
                continue
            self._check_duplicate("tools", at)
            tool_list = parse_tool_list(lines, at)
            for each in tool_list.problems:
                self._add_problem(each.line_index, "tools", each.message, each.hint)
            self.front_matter.values["tools"] = tuple(tool_list.items)
            yaml_lines[at : tool_list.end] = [""] * (tool_list.end - at)
            at = tool_list.end
        return "\n".join(yaml_lines)

    def parse_keys(self, text: str) -> None:
        entries = parse_yaml_mapping(text)
        if isinstance(entries, YamlProblem):
            hint = "put text that contains a colon, a # or a * in quotes"
            self._add_problem(
                entries.line, "", f"the front matter is not valid YAML: {entries.message}", hint
            )
            return
        for entry in entries:
            self._check_duplicate(entry.key, entry.line)
            self._apply_entry(entry)

    def _apply_entry(self, entry: YamlEntry) -> None:
        key, reader = entry.key, _READER_BY_KEY.get(entry.key)
        if key == NAME_KEY and self._has_heading_name:
            self._add_hint(entry.line, key, "the heading names the agent, so this name is ignored")
        elif key == "tools":
            self._add_problem(entry.line, key, "the key 'tools' must start at the beginning of a line")
        elif reader is None:
            similar = get_close_matches(key, FRONT_MATTER_KEYS, n=1, cutoff=0.5)
            hint = (
                f"did you mean '{similar[0]}'?" if similar else f"known keys: {', '.join(FRONT_MATTER_KEYS)}"
            )
            self._add_hint(entry.line, key, "unknown key, which is ignored", hint)
        else:
            read, expected = reader
            if (found := read(entry.value)) is None:
                self._add_problem(entry.value.line, key, f"expected {expected}, found {entry.value}")
            elif found != "":  # An empty text is the default.
                self.front_matter.values[key] = found

    def _check_duplicate(self, key: str, at: int) -> None:
        if key in self._first_line_by_key:
            first = self._first_line_by_key[key] + self._first_line
            self._add_problem(at, key, f"duplicate key, first used on line {first}", "remove one of them")
        self._first_line_by_key.setdefault(key, at)

    def _add_problem(self, at: int, key: str, message: str, hint: str | None = None) -> None:
        self.front_matter.problems.append(Problem(message, self._file, self._first_line + at, key, hint))

    def _add_hint(self, at: int, key: str, message: str, hint: str | None = None) -> None:
        self.front_matter.hints.append(Problem(message, self._file, self._first_line + at, key, hint))


# Each reader returns the value of a key, or None for a value of another form.


def _read_temperature(value: YamlValue) -> float | None:
    if value.text and not value.is_quoted and _NUMBER_PATTERN.fullmatch(value.text):
        number = float(value.text)
        return number if 0 <= number <= MAX_TEMPERATURE else None
    return None


def _read_max_steps(value: YamlValue) -> int | None:
    if value.text and not value.is_quoted and _COUNT_PATTERN.fullmatch(value.text):
        return int(value.text) or None
    return None


def _read_texts(value: YamlValue) -> tuple[str, ...] | None:
    """Return the texts of a list; None also if an item is not a text."""
    texts = tuple(item.text for item in value.items or () if item.text)
    return texts if value.items is not None and len(texts) == len(value.items) else None


_READER_BY_KEY: dict[str, tuple[Callable[[YamlValue], Any], str]] = {
    NAME_KEY: (lambda value: value.text or None, "a name"),
    "description": (lambda value: value.text, "a text"),
    "model": (lambda value: value.text, "the name of a model"),
    "temperature": (_read_temperature, f"a number from 0 to {MAX_TEMPERATURE:g}"),
    "max_steps": (_read_max_steps, "a whole number of at least 1"),
    "mode": (lambda value: value.text if value.text in ("direct", "meta") else None, "direct or meta"),
    "bundles": (_read_texts, "a list of bundle ids"),
    "starters": (_read_texts, "a list of messages"),
}
"""By key: the reader of its value, and a description of the values that it expects."""
