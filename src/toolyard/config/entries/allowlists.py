"""Checks of ``allowTools``, common to servers and bundles."""

from __future__ import annotations

from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.problem_report import ProblemReport
from toolyard.config.sources.json_document import JsonPath

__all__ = ["BARE_STAR_HINT", "is_bare_star", "read_allow_tools", "report_bare_stars"]

BARE_STAR_HINT = "an untrusted server cannot be allowed everything: list the tools you need"

_ALLOW_TOOLS_KEY = "allowTools"


def read_allow_tools(entry: CheckedObject) -> tuple[str, ...] | None:
    """Return the allowlist, or None if it is missing.

    An empty one is a problem: it would block every tool.
    """
    if entry.value.get(_ALLOW_TOOLS_KEY) == []:
        entry.report.add_problem(
            (*entry.path, _ALLOW_TOOLS_KEY),
            "expected at least one tool, found an empty list",
            hint="leave allowTools out to allow every tool of a trusted server",
        )
    return entry.patterns(_ALLOW_TOOLS_KEY)


def is_bare_star(pattern: str) -> bool:
    """Return whether a pattern matches every name."""
    return bool(pattern) and not pattern.strip("*")


def report_bare_stars(patterns: tuple[str, ...] | None, path: JsonPath, report: ProblemReport) -> None:
    """Report patterns that match everything, which are not allowed for an untrusted server."""
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern):
            report.add_problem(
                (*path, _ALLOW_TOOLS_KEY, index),
                f'expected the name of a tool or a narrower glob, found "{pattern}"',
                hint=BARE_STAR_HINT,
            )
