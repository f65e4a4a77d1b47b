"""Grep by ripgrep, where it is installed.

It says which lines match; they are read elsewhere, in the way that cannot leave the workspace. It is asked
only what it reads as we do: an expression that it reads in another way, or not at all, is for our own engine.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import Leash, Threads
from toolyard.agents.builtin_tools.directory_walk import SKIPPED
from toolyard.agents.builtin_tools.grep import LARGEST, Hits, Search, SearchCut
from toolyard.agents.builtin_tools.grep_fallback import OwnEngine, check_pattern
from toolyard.agents.builtin_tools.grep_worker import MOST
from toolyard.agents.builtin_tools.worker_process import Apart
from toolyard.agents.builtin_tools.workspace import Workspace
from toolyard.transports.stdio.supervisor import child_environment

__all__ = ["Ripgrep", "find_ripgrep"]

_READING = 60.0
_MESSAGE = 64 * 1024 * 1024
_OURS = re.compile(r"\\[A<>N]|\\b\{|\(\?(?!:|P<)|[*+?}]\+")
"""What has another meaning there: a text's beginning, half a word boundary, flags, possessive repeats."""
_OPTIONS = (
    "--json --no-config --no-ignore --hidden --no-follow --one-file-system --no-messages --sort=path --crlf"
    f" --encoding=none --max-filesize={LARGEST} --max-count={MOST} --glob=!{SKIPPED}"
).split()
_INCOMPLETE = 2


def find_ripgrep() -> str | None:
    """Where it is installed, on a system where it can be given a folder that nobody can swap."""
    found = shutil.which("rg") if sys.platform == "linux" else None
    return found if found is not None and os.path.isabs(found) else None


class Ripgrep:
    """Has ripgrep walk the tree; ``own`` is asked what ripgrep cannot be."""

    def __init__(self, program: str, workspace: Workspace, threads: Threads, own: OwnEngine) -> None:
        self._program = program
        self._workspace = workspace
        self._threads = threads
        self._own = own

    async def hits(self, search: Search) -> AsyncGenerator[Hits, None]:
        if _OURS.search(search.pattern) is None:
            async with Apart("grep_worker") as checking:
                await check_pattern(checking, search)
            with closing(_Start(self._workspace, search.path)) as start:
                await self._threads.run(start.enter, _READING)
                if start.fd is not None:
                    run = _Run(self._program, search, start.fd, start.path)
                    async with aclosing(run.hits()) as hits:
                        async for each in hits:
                            yield each
                    if run.understood:
                        return
        async with aclosing(self._own.hits(search)) as hits:
            async for each in hits:
                yield each


class _Start:
    """The folder to begin in, held open. ``fd`` stays None where it is a file."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self.path = path
        self.fd: int | None = None
        self._workspace = workspace
        self._closed = False
        self._lock = threading.Lock()

    def enter(self, _: Leash) -> None:
        with self._workspace.open(self.path) as start, self._lock:
            # Whoever waited for it may be gone by now.
            if start.is_folder and not self._closed:
                self.path, self.fd = start.path, os.dup(start.fd)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self.fd is not None:
                os.close(self.fd)
                self.fd = None


class _Run:
    """One run of ripgrep in one folder."""

    def __init__(self, program: str, search: Search, folder: int, path: str) -> None:
        self._program = program
        self._search = search
        self._folder = folder
        self._before = "" if path == "." else f"{path}/"
        self.understood = False
        """Whether it searched at all: it tells of the end, whatever it found."""

    async def hits(self) -> AsyncGenerator[Hits, None]:
        case = "--ignore-case" if self._search.ignore_case else "--case-sensitive"
        process = await asyncio.create_subprocess_exec(
            self._program,
            *_OPTIONS,
            case,
            f"--regexp={self._search.pattern}",
            "./",
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            # The folder that was opened, wherever its name leads by now.
            cwd=f"/proc/self/fd/{self._folder}",
            env=child_environment({}),
            limit=_MESSAGE,
            start_new_session=True,
        )
        try:
            async for each in self._read(process):
                yield each
            if await process.wait() == _INCOMPLETE and self.understood:
                raise SearchCut("not everything could be read")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())

    async def _read(self, process: Process) -> AsyncIterator[Hits]:
        assert process.stdout is not None
        lines: list[int] = []
        while message := await process.stdout.readline():
            event = json.loads(message)
            kind, data = event["type"], event["data"]
            self.understood = True
            if kind == "begin":
                lines = []
            elif kind == "match":
                lines.append(data["line_number"])
            elif kind == "end" and lines:
                below = _path(data["path"])
                if self._search.glob is None or self._search.glob(below):
                    yield Hits(self._before + below, lines)


def _path(told: dict[str, Any]) -> str:
    """A path from where it began, also one that is no Unicode."""
    name = told["text"] if "text" in told else os.fsdecode(base64.b64decode(told["bytes"]))
    return str(name).removeprefix("./")
