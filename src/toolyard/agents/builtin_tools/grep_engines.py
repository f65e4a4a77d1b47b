"""The two grep engines: ripgrep if it is installed, else a worker process, which can be killed.

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
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import aclosing, closing
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool, CancellationToken
from toolyard.agents.builtin_tools.directory_walk import SKIPPED_FOLDER_NAME, DirectoryWalk, WalkEntry
from toolyard.agents.builtin_tools.grep import (
    MAX_FILE_BYTES,
    FileMatches,
    GrepQuery,
    IncompleteSearch,
    read_text_bytes,
)
from toolyard.agents.builtin_tools.grep_worker import GREP_WORKER_MODULE, MAX_LINES_PER_FILE
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import OpenedPath, Workspace
from toolyard.transports.stdio.supervisor import build_child_environment
from toolyard.workers.worker_process import WorkerProcess

__all__ = ["FallbackGrepEngine", "RipgrepEngine", "find_ripgrep", "send_pattern"]

_MAX_BATCH_BYTES = 1024 * 1024
_MAX_BATCH_FILES = 200
_READ_TIMEOUT_SECONDS = 60.0
_MAX_PATTERN_CHARACTERS = 1000


class FallbackGrepEngine:
    """Walks the tree in a thread and sends batches of files to the worker."""

    def __init__(self, workspace: Workspace, threads: BoundedThreadPool) -> None:
        self._workspace = workspace
        self._threads = threads

    async def find_matches(self, query: GrepQuery) -> AsyncGenerator[FileMatches, None]:
        batches = _FileBatches(self._workspace, query)
        try:
            async with WorkerProcess(GREP_WORKER_MODULE) as program:
                await send_pattern(program, query)
                while batch := await self._threads.run(batches.read_batch, _READ_TIMEOUT_SECONDS):
                    for hits in await _match_batch(program, batch):
                        yield hits
        finally:
            batches.cancellation.cancel()
            # A thread may still be inside the generator, so it is closed in the pool, under the lock, not
            # here.
            self._threads.submit(batches.close)
        if batches.is_incomplete:
            raise IncompleteSearch("not everything could be read")


async def send_pattern(worker: WorkerProcess, query: GrepQuery) -> None:
    """Send the pattern to the worker. Raises NativeToolError for an invalid regular expression."""
    if not query.pattern or len(query.pattern) > _MAX_PATTERN_CHARACTERS:
        raise NativeToolError(f"a pattern must have 1 to {_MAX_PATTERN_CHARACTERS:,} characters")
    message = {"pattern": query.pattern, "ignore_case": query.ignore_case}
    fault = await worker.send_request(json.dumps(message).encode())
    if fault:
        raise NativeToolError(f"the pattern is not valid: {fault.decode('utf-8', 'replace')[:300]}")


async def _match_batch(worker: WorkerProcess, batch: list[tuple[str, bytes]]) -> list[FileMatches]:
    head = " ".join(str(len(data)) for _, data in batch).encode()
    answer: list[list[int]] = json.loads(
        await worker.send_request(b"\n".join((head, b"".join(d for _, d in batch))))
    )
    return [FileMatches(path, lines) for (path, _), lines in zip(batch, answer, strict=True) if lines]


class _FileBatches:
    """Reads text files below a path in batches. Used by one thread at a time."""

    def __init__(self, workspace: Workspace, query: GrepQuery) -> None:
        self.cancellation = CancellationToken(_READ_TIMEOUT_SECONDS)
        self.is_incomplete = False
        self._workspace = workspace
        self._query = query
        self._files = self._iter_files()
        self._lock = threading.Lock()

    def read_batch(self, cancellation: CancellationToken) -> list[tuple[str, bytes]]:
        """Return the next files; empty at the end. Raises NativeToolError."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        with self._lock:
            for path, data in self._files:
                batch.append((path, data))
                size += len(data)
                if size >= _MAX_BATCH_BYTES or len(batch) >= _MAX_BATCH_FILES:
                    break
        return batch

    def close(self) -> None:
        with self._lock:
            self._files.close()

    def _iter_files(self) -> Generator[tuple[str, bytes], None, None]:
        with self._workspace.open(self._query.path) as start:
            if not start.is_folder:
                data = read_text_bytes(start)
                if data is not None:
                    yield start.path, data
                return
            walk = DirectoryWalk(self._workspace, start, self.cancellation)
            for entry in walk:
                if entry.is_file and (self._query.glob is None or self._query.glob(entry.relative_path)):
                    data = self._read_entry(entry)
                    if data is not None:
                        yield entry.path, data
            self.is_incomplete |= walk.is_incomplete

    def _read_entry(self, entry: WalkEntry) -> bytes | None:
        try:
            fd = entry.open()
        except OSError:
            self.is_incomplete = True
            return None
        try:
            return read_text_bytes(OpenedPath(fd, entry.path, os.fstat(fd)))
        finally:
            os.close(fd)


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
