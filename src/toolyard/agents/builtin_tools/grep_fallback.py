"""Grep engine without ripgrep: files are read here and matched in a worker process, which can be killed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncGenerator, Generator

from toolyard.agents.builtin_tools.bounded_thread import BoundedThreadPool, CancellationToken
from toolyard.agents.builtin_tools.directory_walk import DirectoryWalk, WalkEntry
from toolyard.agents.builtin_tools.grep import FileMatches, GrepQuery, IncompleteSearch, read_text_bytes
from toolyard.agents.builtin_tools.grep_worker import GREP_WORKER_MODULE
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import OpenedPath, Workspace
from toolyard.workers.worker_process import WorkerProcess

__all__ = ["FallbackGrepEngine", "send_pattern"]

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
