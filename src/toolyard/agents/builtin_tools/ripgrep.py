"""Grep engine that uses ripgrep, if it is installed.

Ripgrep only reports which lines match; they are read elsewhere, through ``Workspace``. Patterns that ripgrep
interprets differently from Python, or not at all, go to the fallback engine.
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

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool, CancellationToken
from toolyard.agents.builtin_tools.directory_walk import SKIPPED_FOLDER_NAME
from toolyard.agents.builtin_tools.grep import MAX_FILE_BYTES, FileMatches, GrepQuery, IncompleteSearch
from toolyard.agents.builtin_tools.grep_fallback import FallbackGrepEngine, send_pattern
from toolyard.agents.builtin_tools.grep_worker import GREP_WORKER_MODULE, MAX_LINES_PER_FILE
from toolyard.agents.builtin_tools.workspace import Workspace
from toolyard.transports.stdio.supervisor import build_child_environment
from toolyard.workers.worker_process import WorkerProcess

__all__ = ["RipgrepEngine", "find_ripgrep"]

_OPEN_TIMEOUT_SECONDS = 60.0
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_UNSUPPORTED_SYNTAX_PATTERN = re.compile(r"\\[A<>N]|\\b\{|\(\?(?!:|P<)|[*+?}]\+")
"""Syntax with another meaning in ripgrep: start of text, half word boundaries, flags, possessive repeats."""
_RIPGREP_OPTIONS = (
    "--json --no-config --no-ignore --hidden --no-follow --one-file-system --no-messages --sort=path --crlf"
    f" --encoding=none --max-filesize={MAX_FILE_BYTES} --max-count={MAX_LINES_PER_FILE} "
    f"--glob=!{SKIPPED_FOLDER_NAME}"
).split()
_INCOMPLETE_EXIT_CODE = 2


def find_ripgrep() -> str | None:
    """Return the path of ripgrep on systems where it can search an open folder that cannot be swapped."""
    path = shutil.which("rg") if sys.platform == "linux" else None
    return path if path is not None and os.path.isabs(path) else None


class RipgrepEngine:
    """Searches the tree with ripgrep; ``fallback`` handles the other queries."""

    def __init__(
        self, program: str, workspace: Workspace, threads: BoundedThreadPool, fallback: FallbackGrepEngine
    ) -> None:
        self._program = program
        self._workspace = workspace
        self._threads = threads
        self._fallback = fallback

    async def find_matches(self, query: GrepQuery) -> AsyncGenerator[FileMatches, None]:
        if _UNSUPPORTED_SYNTAX_PATTERN.search(query.pattern) is None:
            # Python compiles the pattern first, so that both engines refuse the same patterns with the same
            # message.
            async with WorkerProcess(GREP_WORKER_MODULE) as worker:
                await send_pattern(worker, query)
            with closing(_StartFolder(self._workspace, query.path)) as start:
                await self._threads.run(start.open_folder, _OPEN_TIMEOUT_SECONDS)
                if start.fd is not None:
                    run = _RipgrepRun(self._program, query, start.fd, start.path)
                    async with aclosing(run.find_matches()) as hits:
                        async for each in hits:
                            yield each
                    if run.has_searched:
                        return
        async with aclosing(self._fallback.find_matches(query)) as hits:
            async for each in hits:
                yield each


class _StartFolder:
    """The folder to search, held open. ``fd`` stays None if the path is a file."""

    def __init__(self, workspace: Workspace, path: str) -> None:
        self.path = path
        self.fd: int | None = None
        self._workspace = workspace
        self._closed = False
        self._lock = threading.Lock()

    def open_folder(self, _: CancellationToken) -> None:
        with self._workspace.open(self.path) as start, self._lock:
            # The caller may have been cancelled, and have closed this object, before the thread got here.
            if start.is_folder and not self._closed:
                self.path, self.fd = start.path, os.dup(start.fd)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self.fd is not None:
                os.close(self.fd)
                self.fd = None


class _RipgrepRun:
    """One run of ripgrep in one folder."""

    def __init__(self, program: str, query: GrepQuery, folder_fd: int, path: str) -> None:
        self._program = program
        self._query = query
        self._folder_fd = folder_fd
        self._path_prefix = "" if path == "." else f"{path}/"
        self.has_searched = False
        """Whether ripgrep searched at all: it reports the end of a search even without matches."""

    async def find_matches(self) -> AsyncGenerator[FileMatches, None]:
        case = "--ignore-case" if self._query.ignore_case else "--case-sensitive"
        process = await asyncio.create_subprocess_exec(
            self._program,
            *_RIPGREP_OPTIONS,
            case,
            f"--regexp={self._query.pattern}",
            "./",
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            # The opened folder itself, even if its path leads elsewhere by now.
            cwd=f"/proc/self/fd/{self._folder_fd}",
            env=build_child_environment({}),
            limit=_MAX_MESSAGE_BYTES,
            start_new_session=True,
        )
        try:
            async for each in self._read_events(process):
                yield each
            if await process.wait() == _INCOMPLETE_EXIT_CODE and self.has_searched:
                raise IncompleteSearch("not everything could be read")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())

    async def _read_events(self, process: Process) -> AsyncIterator[FileMatches]:
        assert process.stdout is not None
        lines: list[int] = []
        while message := await process.stdout.readline():
            event = json.loads(message)
            kind, data = event["type"], event["data"]
            self.has_searched = True
            if kind == "begin":
                lines = []
            elif kind == "match":
                lines.append(data["line_number"])
            elif kind == "end" and lines:
                relative_path = _decode_path(data["path"])
                if self._query.glob is None or self._query.glob(relative_path):
                    yield FileMatches(self._path_prefix + relative_path, lines)


def _decode_path(path_field: dict[str, Any]) -> str:
    """Return a path relative to the start folder, also one that is not valid Unicode."""
    name = path_field["text"] if "text" in path_field else os.fsdecode(base64.b64decode(path_field["bytes"]))
    return str(name).removeprefix("./")
