"""``grep``: return lines of workspace files that match a regular expression.

An engine reports which lines of which files match. The lines themselves are read here, through ``Workspace``,
so that results cannot leave the workspace and do not depend on the engine.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool, CancellationToken
from toolyard.agents.builtin_tools.display_paths import LinePage, escape_path
from toolyard.agents.builtin_tools.path_globs import PathMatcher
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import OpenedPath, Workspace

__all__ = [
    "MAX_FILE_BYTES",
    "FileMatches",
    "GrepEngine",
    "GrepQuery",
    "IncompleteSearch",
    "format_matches",
    "grep",
    "read_text_bytes",
]

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Maximum size of a searched file; larger files are assumed not to be readable text, and are skipped."""
_READ_TIMEOUT_SECONDS = 10.0
_MAX_LINE_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """The pattern and the files to search."""

    pattern: str
    path: str
    glob: PathMatcher | None
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class FileMatches:
    """Line numbers of the matches in one file, in order. ``path`` is relative to the workspace root."""

    path: str
    line_numbers: Sequence[int]


class IncompleteSearch(Exception):
    """Raised by an engine that could not search everything; the message says why."""


class GrepEngine(Protocol):
    """Finds matching lines, in the order of a directory walk.

    Raises NativeToolError or, at the end, IncompleteSearch.
    """

    def find_matches(self, query: GrepQuery) -> AsyncGenerator[FileMatches, None]: ...


async def grep(
    engine: GrepEngine,
    workspace: Workspace,
    threads: BoundedThreadPool,
    query: GrepQuery,
    max_matches: int,
    max_characters: int,
    seconds: float,
) -> str:
    """Return matches as ``path:number: text``, limited in number, characters and time.

    Raises NativeToolError.
    """
    page, note = LinePage(max_matches, max_characters), ""
    try:
        async with asyncio.timeout(seconds), aclosing(engine.find_matches(query)) as hits:
            async for line in _read_matching_lines(hits, workspace, threads):
                if not page.add(line):
                    note = f"only the first {len(page.lines):,} matches are shown"
                    break
    except TimeoutError:
        note = f"stopped after {seconds:g} s, so there may be more; narrow the path or the pattern"
    except IncompleteSearch as incomplete:
        note = f"{incomplete}, so there may be more"
    lines = page.lines or [f"no matches in {escape_path(query.path)}"]
    return "\n".join((*lines, f"({note})") if note else lines)


async def _read_matching_lines(
    hits: AsyncIterator[FileMatches], workspace: Workspace, threads: BoundedThreadPool
) -> AsyncIterator[str]:
    async for each in hits:

        def lines(cancellation: CancellationToken, each: FileMatches = each) -> list[str]:
            return format_matches(workspace, each)

        for line in await threads.run(lines, _READ_TIMEOUT_SECONDS):
            yield line


def format_matches(workspace: Workspace, matches: FileMatches) -> list[str]:
    """Return the matching lines as they are now; none for a file that is gone, binary or outside."""
    try:
        with workspace.open_file(matches.path) as file:
            data = read_text_bytes(file)
    except NativeToolError:
        return []
    if data is None:
        return []
    lines = data.split(b"\n")
    return [
        f"{escape_path(matches.path)}:{number}: {_truncate_line(lines[number - 1])}"
        for number in matches.line_numbers
        if number <= len(lines)
    ]


def read_text_bytes(file: OpenedPath) -> bytes | None:
    """Return the content of a text file; None if it is too large, binary or not a regular file.

    Raises NativeToolError.
    """
    if not stat.S_ISREG(file.stat_result.st_mode) or file.stat_result.st_size > MAX_FILE_BYTES:
        return None
    try:
        with os.fdopen(os.dup(file.fd), "rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return None if len(data) > MAX_FILE_BYTES or b"\0" in data else data


def _truncate_line(line: bytes) -> str:
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip()
    return (
        text
        if len(text) <= _MAX_LINE_CHARACTERS
        else f"{text[:_MAX_LINE_CHARACTERS]} … ({len(text):,} characters in this line)"
    )
