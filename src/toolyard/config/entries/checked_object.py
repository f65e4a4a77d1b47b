"""Typed access to a JSON object that collects problems and hints instead of raising.

The keys that a parser reads are the known keys, so no separate list of them is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, TypeVar

from toolyard.config.sources.json_document import JsonDocument, JsonPath, JsonValue, format_path
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import Problem
from toolyard.types.server import Provenance

__all__ = ["CheckedObject", "ProblemReport", "describe_type"]


@dataclass(slots=True)
class ProblemReport:
    """Collector of problems and hints with their locations, so that all of them are reported at once.

    ``name`` identifies the source in messages: the path of a file, or the name of a variable.
    """

    source: Literal["file", "environment", "overrides", "code"]
    name: str | None = None
    document: JsonDocument | None = None
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])

    def add_problem(
        self, path: JsonPath, message: str, *, hint: str | None = None, at_key: bool = False
    ) -> None:
        """Add a problem, which makes the configuration invalid.

        ``at_key`` locates it at the key, not the value.
        """
        self.problems.append(self._build_problem(path, message, hint, at_key))

    def add_hint(self, path: JsonPath, message: str, *, hint: str | None = None) -> None:
        """Add a warning, which does not make the configuration invalid."""
        self.hints.append(self._build_problem(path, message, hint, at_key=True))

    def for_entry(self) -> ProblemReport:
        """Return a report with problems of its own, for an entry that may fail alone. Hints are shared."""
        return ProblemReport(self.source, self.name, self.document, hints=self.hints)

    def provenance(self, path: JsonPath) -> Provenance:
        """Return the source, file and line of the entry at ``path``."""
        return Provenance(
            self.source, self.name if self.source == "file" else None, self._find_line(path, at_key=True)
        )

    def _build_problem(self, path: JsonPath, message: str, hint: str | None, at_key: bool) -> Problem:
        return Problem(
            message,
            file=self.name,
            line=self._find_line(path, at_key=at_key),
            path=format_path(path),
            hint=hint,
        )

    def _find_line(self, path: JsonPath, *, at_key: bool) -> int | None:
        """Return the line of the value or, if it is missing, of the innermost container that exists."""
        if self.document is None:
            return None
        while path:
            position = self.document.find_position(path, at_key=at_key)
            if position is not None:
                return position[0]
            path, at_key = path[:-1], True
        return 1


def describe_type(value: JsonValue) -> str:
    """Return the kind of a value in words. It never shows a value, which may be a secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "an object"


E = TypeVar("E", bound=StrEnum)
V = TypeVar("V", bool, "list[JsonValue]", "dict[str, JsonValue]")


class CheckedObject:
    """View of the JSON object at ``path``. A null value is treated as a missing key.

    An unknown key is a problem if ``strict``, else a hint. The accessors return None, or an empty mapping,
    after they reported a value of the wrong type.
    """

    __slots__ = ("_known_keys", "path", "report", "strict", "value")

    def __init__(
        self, value: Mapping[str, JsonValue], path: JsonPath, report: ProblemReport, *, strict: bool
    ) -> None:
        self.value = value
        self.path = path
        self.report = report
        self.strict = strict
        self._known_keys: dict[str, None] = {}

    def get(self, key: str) -> JsonValue:
        """Return the value unchecked, and mark the key as known."""
        self._known_keys[key] = None
        return self.value.get(key)

    def text(self, key: str, *, required: bool = False) -> str | None:
        """Return a string; if ``required``, it must be present and not empty."""
        value = self.get(key)
        if value is None and not required:
            return None
        if isinstance(value, str) and (value or not required):
            return value
        self.report_mismatch(key, "a non-empty string" if required else "a string", value)
        return None

    def flag(self, key: str) -> bool | None:
        return self._get_typed(key, bool, "true or false")

    def seconds(self, key: str, *, allow_zero: bool = False) -> float | None:
        """Return a finite number of seconds above 0, or from 0 if ``allow_zero``."""
        value = self.get(key)
        if value is None:
            return None
        number = _finite_number(value)
        if number is None or number < 0 or (number == 0 and not allow_zero):
            expected = "a number of seconds, 0 or more" if allow_zero else "a number of seconds above 0"
            self.report_mismatch(key, expected, value, show_value=True)
            return None
        return number

    def port(self, key: str) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
            self.report_mismatch(key, "a port from 0 to 65535", value, show_value=True)
            return None
        return value

    def choice(self, key: str, options: Iterable[str], *, required: bool = False) -> str | None:
        """Return one of the given words."""
        value = self.get(key)
        if value is None and not required:
            return None
        words = list(options)
        if isinstance(value, str) and value in words:
            return value
        hint = did_you_mean(value, words, list_known=False) if isinstance(value, str) else None
        quoted = " or ".join(f'"{word}"' for word in words)
        self.report_mismatch(key, quoted, value, show_value=True, hint=hint)
        return None

    def enum_member(self, key: str, options: type[E], *, required: bool = False) -> E | None:
        """Return a member of an enumeration, by value."""
        value = self.get(key)
        if value is None and not required:
            return None
        if isinstance(value, str):
            with suppress(ValueError):
                return options(value)
        self.choice(key, [option.value for option in options], required=required)
        return None

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of strings."""
        items = self._get_typed(key, list, "a list of strings")
        if items is None:
            return None
        texts: list[str] = []
        for index, item in enumerate(items):
            if isinstance(item, str):
                texts.append(item)
            else:
                self._report_unexpected((*self.path, key, index), "a string", describe_type(item), None)
        return tuple(texts)

    def patterns(self, key: str) -> tuple[str, ...] | None:
        """Return a list of tool names and globs, none of them empty."""
        texts = self.texts(key)
        for index, text in enumerate(texts or ()):
            if not text:
                self._report_unexpected(
                    (*self.path, key, index), "the name of a tool or a glob", "an empty string", None
                )
        return texts

    def text_map(self, key: str) -> Mapping[str, str]:
        """Return an object of strings. The values may be secrets, so no message shows them.

        Unless ``strict``, numbers and booleans become text and null values are left out, as in other clients.
        """
        items = self._get_typed(key, dict, "an object of strings")
        texts: dict[str, str] = {}
        for name, item in (items or {}).items():
            if isinstance(item, str):
                texts[name] = item
            elif not self.strict and isinstance(item, (bool, int, float)):
                texts[name] = str(item).lower() if isinstance(item, bool) else str(item)
            elif self.strict or item is not None:
                hint = "put it in quotes" if isinstance(item, (bool, int, float)) else None
                self._report_unexpected((*self.path, key, name), "a string", describe_type(item), hint)
        return MappingProxyType(texts)

    def child_object(self, key: str) -> CheckedObject | None:
        """Return a view of a nested object."""
        value = self._get_typed(key, dict, "an object")
        if value is None:
            return None
        return CheckedObject(value, (*self.path, key), self.report, strict=self.strict)

    def _get_typed(self, key: str, type_: type[V], expected: str) -> V | None:
        """Return a value of this type. A missing value is None, and so is a reported one."""
        value = self.get(key)
        if value is None or isinstance(value, type_):
            return value
        self.report_mismatch(key, expected, value)
        return None

    def report_mismatch(
        self, key: str, expected: str, value: JsonValue, *, show_value: bool = False, hint: str | None = None
    ) -> None:
        """Report a missing or unexpected value. Use ``show_value`` only if it cannot be a secret."""
        if key not in self.value:
            self.report.add_problem((*self.path, key), f"missing; expected {expected}", hint=hint)
            return
        found = describe_type(value)
        if show_value and isinstance(value, (int, float)) and not isinstance(value, bool):
            found = f"{value:.6g}" if isinstance(value, float) else _shorten_text(str(value))
        elif show_value and isinstance(value, str) and value:
            found = f'"{_shorten_text(value)}"'
        self._report_unexpected((*self.path, key), expected, found, hint)

    def report_unknown_keys(self) -> None:
        """Report the keys that were not read."""
        for key in self.value:
            if key in self._known_keys:
                continue
            path = (*self.path, key)
            if self.strict:
                self.report.add_problem(
                    path, "unknown key", hint=did_you_mean(key, self._known_keys), at_key=True
                )
            else:
                suggestion = did_you_mean(key, self._known_keys, list_known=False)
                self.report.add_hint(path, "unknown key, ignored", hint=suggestion)

    def _report_unexpected(self, path: JsonPath, expected: str, found: str, hint: str | None) -> None:
        self.report.add_problem(path, f"expected {expected}, found {found}", hint=hint)


def _finite_number(value: JsonValue) -> float | None:
    # bool is a subclass of int, but true and false are not numbers in JSON.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of float
        return None
    return number if math.isfinite(number) else None


def _shorten_text(text: str) -> str:
    # Escape control characters, which could manipulate the terminal that displays the message.
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 40 else f"{text[:37]}..."
