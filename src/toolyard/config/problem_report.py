"""What is wrong, and what is merely worth saying, about one source of configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from toolyard.config.sources.json_document import Document, JsonValue, Steps, path_text
from toolyard.errors import Problem
from toolyard.types.server import Provenance

__all__ = ["Report", "kind_of"]


@dataclass(slots=True)
class Report:
    """Collects problems and hints of one source, each with its place, so that all are told at once.

    ``name`` is what messages call the source: a file's path, or the variable that held the text.
    """

    source: Literal["file", "environment", "overrides", "code"]
    name: str | None = None
    document: Document | None = None
    problems: list[Problem] = field(default_factory=list[Problem])
    hints: list[Problem] = field(default_factory=list[Problem])

    def problem(self, path: Steps, message: str, *, hint: str | None = None, key: bool = False) -> None:
        """Something that stops the configuration. ``key`` places it at the key instead of its value."""
        self.problems.append(self._place(path, message, hint, key))

    def hint(self, path: Steps, message: str, *, hint: str | None = None) -> None:
        """Something that stops nothing."""
        self.hints.append(self._place(path, message, hint, key=True))

    def provenance(self, path: Steps) -> Provenance:
        """Where the entry at ``path`` stands."""
        return Provenance(
            self.source, self.name if self.source == "file" else None, self._line(path, key=True)
        )

    def _place(self, path: Steps, message: str, hint: str | None, key: bool) -> Problem:
        return Problem(
            message, file=self.name, line=self._line(path, key=key), path=path_text(path), hint=hint
        )

    def _line(self, path: Steps, *, key: bool) -> int | None:
        """The line of the value, or of the nearest thing around it that is there."""
        if self.document is None:
            return None
        while path:
            position = self.document.position_of(path, key=key)
            if position is not None:
                return position[0]
            path, key = path[:-1], True
        return 1


def kind_of(value: JsonValue) -> str:
    """What a value is, in words, without showing it."""
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
