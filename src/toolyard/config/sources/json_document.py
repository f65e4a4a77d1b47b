"""What a text of JSON says, and where in the text each key and value stands."""

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
"""The way from the root to a value: keys and list indexes."""

_MAX_STEP_CHARACTERS = 80
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_$-]{{1,{_MAX_STEP_CHARACTERS}}}")


class PositionedObject(dict[str, JsonValue]):
    """An object that knows where its keys and values stand in the text."""

    __slots__ = ("key_offsets", "value_offsets")
    closing_bracket: ClassVar = "}"

    def __init__(self) -> None:
        self.key_offsets: dict[str, int] = {}
        self.value_offsets: dict[str, int] = {}

    def put(self, key: str, value: JsonValue, start: int) -> None:
        self[key] = value
        self.value_offsets[key] = start


class PositionedList(list[JsonValue]):
    """A list that knows where its values stand in the text."""

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
    """What a text says. ``root`` equals what the standard library would read."""

    root: JsonValue
    text: str
    root_offset: int = 0
    duplicate_keys: tuple[Problem, ...] = ()
    """A key that stands twice in one object; the last value counts."""

    def find_offset(self, path: JsonPath, *, at_key: bool = False) -> int | None:
        """Where the value at ``path`` begins, or its key; None where there is no such value."""
        value, offset = self.root, self.root_offset
        for number, step in enumerate(path, 1):
            if isinstance(value, PositionedObject) and isinstance(step, str) and step in value:
                wants_key = at_key and number == len(path)
                offset = value.key_offsets[step] if wants_key else value.value_offsets[step]
                value = value[step]
            elif isinstance(value, PositionedList) and isinstance(step, int) and step < len(value):
                offset, value = value.value_offsets[step], value[step]
            else:
                return None
        return offset

    def find_position(self, path: JsonPath, *, at_key: bool = False) -> tuple[int, int] | None:
        """Line and column of a value or of its key, both counted from 1."""
        offset = self.find_offset(path, at_key=at_key)
        return None if offset is None else self.line_and_column(offset)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] + 1 if line else 0) + 1

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]


def format_path(path: JsonPath) -> str:
    """A path as messages write it, such as ``servers.repo.allowTools[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            shown = step if len(step) <= _MAX_STEP_CHARACTERS else f"{step[:_MAX_STEP_CHARACTERS]}..."
            text += f"[{shown!r}]"
    return text
