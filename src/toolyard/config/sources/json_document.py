"""What a text of JSON says, and where in the text each key and value stands."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

from toolyard.errors import Problem

__all__ = ["Document", "JsonValue", "PlacedList", "PlacedObject", "Steps", "path_text"]

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Steps: TypeAlias = tuple[str | int, ...]
"""The way from the root to a value: keys and list indexes."""

_LONGEST_STEP = 80
_PLAIN_KEY = re.compile(rf"[A-Za-z0-9_$-]{{1,{_LONGEST_STEP}}}")


class PlacedObject(dict[str, JsonValue]):
    """An object that knows where its keys and values stand in the text."""

    __slots__ = ("keys_at", "values_at")
    closing: ClassVar = "}"

    def __init__(self) -> None:
        self.keys_at: dict[str, int] = {}
        self.values_at: dict[str, int] = {}

    def put(self, key: str, value: JsonValue, start: int) -> None:
        self[key] = value
        self.values_at[key] = start


class PlacedList(list[JsonValue]):
    """A list that knows where its values stand in the text."""

    __slots__ = ("values_at",)
    closing: ClassVar = "]"

    def __init__(self) -> None:
        self.values_at: list[int] = []

    def put(self, key: str, value: JsonValue, start: int) -> None:
        del key
        self.append(value)
        self.values_at.append(start)


@dataclass(frozen=True)
class Document:
    """What a text says. ``root`` equals what the standard library would read."""

    root: JsonValue
    text: str
    root_at: int = 0
    duplicates: tuple[Problem, ...] = ()
    """A key that stands twice in one object; the last value counts."""

    def offset_of(self, path: Steps, *, key: bool = False) -> int | None:
        """Where the value at ``path`` begins, or its key; None where there is no such value."""
        value, offset = self.root, self.root_at
        for number, step in enumerate(path, 1):
            if isinstance(value, PlacedObject) and isinstance(step, str) and step in value:
                wants_key = key and number == len(path)
                offset = value.keys_at[step] if wants_key else value.values_at[step]
                value = value[step]
            elif isinstance(value, PlacedList) and isinstance(step, int) and step < len(value):
                offset, value = value.values_at[step], value[step]
            else:
                return None
        return offset

    def position_of(self, path: Steps, *, key: bool = False) -> tuple[int, int] | None:
        """Line and column of a value or of its key, both counted from 1."""
        offset = self.offset_of(path, key=key)
        return None if offset is None else self.position(offset)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = bisect_left(self._line_ends, offset)
        return line + 1, offset - (self._line_ends[line - 1] + 1 if line else 0) + 1

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]


def path_text(path: Steps) -> str:
    """A path as messages write it, such as ``servers.repo.allowTools[0]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            shown = step if len(step) <= _LONGEST_STEP else f"{step[:_LONGEST_STEP]}..."
            text += f"[{shown!r}]"
    return text
