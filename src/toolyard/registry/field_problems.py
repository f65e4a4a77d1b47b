"""Problems of fields while they are collected: all of them are told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import StrEnum
from typing import TypeVar

from toolyard.errors import Problem
from toolyard.registry.errors import Invalid

__all__ = ["FieldChecker"]

E = TypeVar("E", bound=StrEnum)


class FieldChecker:
    """What is wrong so far. A question notes its problem and gives a value to go on with."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def add_problem(self, path: str, message: str, hint: str | None = None) -> None:
        """Something is wrong with the field at ``path``."""
        self._problems.append(Problem(message, path=path, hint=hint))

    def text(
        self, path: str, text: str, find_fault: Callable[[str], str | None], hint: str | None = None
    ) -> str:
        """The text without blanks around it, judged by ``fault``."""
        text = text.strip()
        if (wrong := find_fault(text)) is not None:
            self.add_problem(path, wrong, hint)
        return text

    def texts(
        self, path: str, texts: Iterable[str], find_fault: Callable[[str], str | None], max_entries: int
    ) -> tuple[str, ...]:
        """Each text once, judged by ``fault``; at most so many."""
        found = list(texts)
        if len(found) > max_entries:
            self.add_problem(path, f"has {len(found):,} entries, at most {max_entries:,} are allowed")
            return ()
        read = [self.text(f"{path}[{index}]", text, find_fault) for index, text in enumerate(found)]
        return tuple(dict.fromkeys(read))

    def parse_enum(self, path: str, value: str, enum_type: type[E], default: E) -> E:
        """The word as one of the values of an enumeration."""
        with suppress(ValueError):
            return enum_type(value)
        self.add_problem(path, f"must be one of {', '.join(each.value for each in enum_type)}")
        return default

    def raise_problems(self) -> None:
        """Raises Invalid where anything was wrong."""
        if self._problems:
            raise Invalid(self._problems)
