"""Parsed JSON with the position of each key and value in the text."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from toolyard.errors import Problem

__all__ = ["JsonDocument", "JsonPath", "JsonValue", "PositionedList", "PositionedObject", "format_path"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonPath: TypeAlias = tuple[str | int, ...]
"""Path from the root to a value: keys and list indexes."""

_MAX_STEP_CHARACTERS = 80
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_$-]{{1,{_MAX_STEP_CHARACTERS}}}")


class PositionedObject(dict[str, JsonValue]):
    """JSON object with the offsets of its keys and values in the text."""

    __slots__ = ("key_offsets", "value_offsets")
    closing_bracket: ClassVar = "}"

    def __init__(self) -> None:
        self.key_offsets: dict[str, int] = {}
        self.value_offsets: dict[str, int] = {}

    def put(self, key: str, value: JsonValue, start: int) -> None:
        self[key] = value
        self.value_offsets[key] = start


class PositionedList(list[JsonValue]):
    """JSON array with the offsets of its values in the text."""

    __slots__ = ("value_offsets",)
    closing_bracket: ClassVar = "]"

    def __init__(self) -> None:
        self.value_offsets: list[int] = []

    def put(self, key: str, value: JsonValue, start: int) -> None:
        del key
        self.append(value)
        self.value_offsets.append(start)


@dataclass(frozen=True)
class JsonDocument:
    """A parsed text.

    ``root`` equals the result of ``json.loads``, apart from comments and trailing commas.
    """

    root: JsonValue
    text: str
    root_offset: int = 0
    duplicate_keys: tuple[Problem, ...] = ()
    """Keys that occur twice in one object; the last value is used."""

    # Offsets are recorded while parsing; lines and columns are computed only for messages, since most values
    # are never part of one.

    def find_offset(self, path: JsonPath, *, at_key: bool = False) -> int | None:
        """Return the offset of the value at ``path``, or of its key; None if it does not exist."""
        value, offset = self.root, self.root_offset
        for number, step in enumerate(path, 1):
            if isinstance(value, PositionedObject) and isinstance(step, str) and step in value:
                use_key = at_key and number == len(path)
                offset = value.key_offsets[step] if use_key else value.value_offsets[step]
                value = value[step]
            elif isinstance(value, PositionedList) and isinstance(step, int) and step < len(value):
                offset, value = value.value_offsets[step], value[step]
            else:
                return None
        return offset

    def find_position(self, path: JsonPath, *, at_key: bool = False) -> tuple[int, int] | None:
        """Return line and column of a value or of its key, counted from 1; None if it does not exist."""
        offset = self.find_offset(path, at_key=at_key)
        return None if offset is None else self.line_and_column(offset)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, counted from 1."""
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] + 1 if line else 0) + 1

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]


def format_path(path: JsonPath) -> str:
    """Format a path for messages, e.g. ``servers.repo.allowTools[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            shortened = step if len(step) <= _MAX_STEP_CHARACTERS else f"{step[:_MAX_STEP_CHARACTERS]}..."
            text += f"[{shortened!r}]"
    return text
