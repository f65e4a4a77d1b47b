"""``grep``: the lines of files in the workspace that match a regular expression.

An engine says which lines of which files match; the lines themselves are read here, in the one way that
cannot leave the workspace, so what is answered does not depend on the engine.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from toolyard.agents.builtin_tools.bounded_thread import Leash, Threads
from toolyard.agents.builtin_tools.display_paths import shown
from toolyard.agents.builtin_tools.path_globs import Glob
from toolyard.agents.builtin_tools.tool_error import NativeFailure
from toolyard.agents.builtin_tools.workspace import Opened, Workspace

__all__ = ["LARGEST", "Engine", "Hits", "Search", "SearchCut", "grep", "lines_of", "read_whole"]

LARGEST = 8 * 1024 * 1024
"""Bytes of a file. Longer ones are no text that somebody reads, and are skipped."""
_READING = 10.0
_LINE = 400


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, and where."""

    pattern: str
    path: str
    glob: Glob | None
    ignore_case: bool


@dataclass(frozen=True, slots=True)
class Hits:
    """The numbers of lines of one file that match, in order. ``path`` is from the workspace's root."""

    path: str
    lines: Sequence[int]


class SearchCut(Exception):
    """The engine could not look at everything; the words say why."""


class Engine(Protocol):
    """Finds lines. The files come in the order of a walk; raises NativeFailure or, at its end, SearchCut."""

    def hits(self, search: Search) -> AsyncGenerator[Hits, None]: ...


async def grep(
    engine: Engine,
    workspace: Workspace,
    threads: Threads,
    search: Search,
    most: int,
    room: int,
    seconds: float,
) -> str:
    """Lines as ``path:number: text``, at most ``most``, in ``room`` characters and so many seconds.

    Raises NativeFailure.
    """
    page = _Page(most, room)
    try:
        async with asyncio.timeout(seconds), aclosing(engine.hits(search)) as hits:
            async for line in _read(hits, workspace, threads):
                if not page.add(line):
                    break
    except TimeoutError:
        page.note = f"stopped after {seconds:g} s, so there may be more; narrow the path or the pattern"
    except SearchCut as cut:
        page.note = f"{cut}, so there may be more"
    return page.text(f"no line below {shown(search.path)} matches")


async def _read(hits: AsyncIterator[Hits], workspace: Workspace, threads: Threads) -> AsyncIterator[str]:
    async for each in hits:

        def lines(leash: Leash, each: Hits = each) -> list[str]:
            return lines_of(workspace, each)

        for line in await threads.run(lines, _READING):
            yield line


def lines_of(workspace: Workspace, hits: Hits) -> list[str]:
    """The lines as they stand in the file now. What is gone, binary or outside gives none."""
    try:
        with workspace.file(hits.path) as found:
            data = read_whole(found)
    except NativeFailure:
        return []
    if data is None:
        return []
    lines = data.split(b"\n")
    return [
        f"{shown(hits.path)}:{number}: {_shortened(lines[number - 1])}"
        for number in hits.lines
        if number <= len(lines)
    ]


def read_whole(found: Opened) -> bytes | None:
    """The bytes of a text; None for what is too long, binary or no file. Raises NativeFailure."""
    if not stat.S_ISREG(found.info.st_mode) or found.info.st_size > LARGEST:
        return None
    try:
        with os.fdopen(os.dup(found.fd), "rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError:
        return None
    return None if len(data) > LARGEST or b"\0" in data else data


def _shortened(line: bytes) -> str:
    text = line.decode("utf-8", "replace").removeprefix("\ufeff").rstrip()
    return text if len(text) <= _LINE else f"{text[:_LINE]} … ({len(text):,} characters in this line)"


class _Page:
    def __init__(self, most: int, room: int) -> None:
        self._most = most
        self._room = room
        self._lines: list[str] = []
        self.note = ""

    def add(self, line: str) -> bool:
        """False: it does not fit any more, and nothing after it."""
        if len(self._lines) >= self._most or len(line) + 1 > self._room:
            self.note = f"the first {len(self._lines):,} matches; there are more"
            return False
        self._lines.append(line)
        self._room -= len(line) + 1
        return True

    def text(self, otherwise: str) -> str:
        lines = self._lines or [otherwise]
        return "\n".join((*lines, f"({self.note})") if self.note else lines)
