"""The rules about ``allowTools`` that servers and bundles share."""

from __future__ import annotations

from toolyard.config.entries.checked_object import CheckedObject
from toolyard.config.problem_report import ProblemReport
from toolyard.config.sources.json_document import JsonPath

__all__ = ["BARE_STAR_HINT", "is_bare_star", "read_allow_tools", "report_bare_stars"]

BARE_STAR_HINT = "an untrusted server may not be allowed everything: name the tools you need"

_ALLOW_TOOLS_KEY = "allowTools"


def read_allow_tools(entry: CheckedObject) -> tuple[str, ...] | None:
    """The allowlist, or None where there is none. An empty one would be a server that can do nothing."""
    if entry.value.get(_ALLOW_TOOLS_KEY) == []:
        entry.report.problem(
            (*entry.path, _ALLOW_TOOLS_KEY),
            "expected at least one tool, found an empty list",
            hint="leave allowTools out to allow every tool of a trusted server",
        )
    return entry.patterns(_ALLOW_TOOLS_KEY)


def is_bare_star(pattern: str) -> bool:
    """Whether a pattern matches every name."""
    return bool(pattern) and not pattern.strip("*")


def report_bare_stars(patterns: tuple[str, ...] | None, path: JsonPath, report: ProblemReport) -> None:
    """An untrusted server's tools are named, or matched by something narrower than everything."""
    for index, pattern in enumerate(patterns or ()):
        if is_bare_star(pattern):
            report.problem(
                (*path, _ALLOW_TOOLS_KEY, index),
                f'expected a tool\'s name or a narrower glob, found "{pattern}"',
                hint=BARE_STAR_HINT,
            )
