"""Problems and hints about one source of configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from toolyard.config.sources.json_document import JsonDocument, JsonPath, JsonValue, format_path
from toolyard.errors import Problem
from toolyard.types.server import Provenance

__all__ = ["ProblemReport", "describe_type"]


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
