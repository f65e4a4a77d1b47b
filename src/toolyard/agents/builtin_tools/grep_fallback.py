"""Grep without ripgrep: files are read here and matched by a program apart, which can be ended."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import AsyncGenerator, Generator

from toolyard.agents.builtin_tools.bounded_thread import Leash, Threads
from toolyard.agents.builtin_tools.directory_walk import Entry, Walk
from toolyard.agents.builtin_tools.grep import Hits, Search, SearchCut, read_whole
from toolyard.agents.builtin_tools.tool_error import NativeFailure
from toolyard.agents.builtin_tools.worker_process import Apart
from toolyard.agents.builtin_tools.workspace import Opened, Workspace

__all__ = ["OwnEngine", "check_pattern"]

_BATCH = 1024 * 1024
_FILES = 200
_READING = 60.0
_LONGEST = 1000


class OwnEngine:
    """Walks the tree in a thread and has each batch of files matched."""

    def __init__(self, workspace: Workspace, threads: Threads) -> None:
        self._workspace = workspace
        self._threads = threads

    async def hits(self, search: Search) -> AsyncGenerator[Hits, None]:
        batches = _Batches(self._workspace, search)
        try:
            async with Apart("grep_worker") as program:
                await check_pattern(program, search)
                while batch := await self._threads.run(batches.next, _READING):
                    for hits in await _matched(program, batch):
                        yield hits
        finally:
            batches.leash.drop()
            self._threads.later(batches.close)
        if batches.cut:
            raise SearchCut("not everything could be read")


async def check_pattern(program: Apart, search: Search) -> None:
    """Tell the program what to look for. Raises NativeFailure for what is no regular expression."""
    if not search.pattern or len(search.pattern) > _LONGEST:
        raise NativeFailure(f"a pattern has from 1 to {_LONGEST:,} characters")
    wanted = {"pattern": search.pattern, "ignore_case": search.ignore_case}
    wrong = await program.ask(json.dumps(wanted).encode())
    if wrong:
        raise NativeFailure(f"the pattern cannot be read: {wrong.decode('utf-8', 'replace')[:300]}")


async def _matched(program: Apart, batch: list[tuple[str, bytes]]) -> list[Hits]:
    head = " ".join(str(len(data)) for _, data in batch).encode()
    answer: list[list[int]] = json.loads(await program.ask(b"\n".join((head, b"".join(d for _, d in batch)))))
    return [Hits(path, lines) for (path, _), lines in zip(batch, answer, strict=True) if lines]


class _Batches:
    """Texts below a path, a batch at a time. Used by one thread after the other."""

    def __init__(self, workspace: Workspace, search: Search) -> None:
        self.leash = Leash(_READING)
        self.cut = False
        self._workspace = workspace
        self._search = search
        self._texts = self._read()
        self._lock = threading.Lock()

    def next(self, leash: Leash) -> list[tuple[str, bytes]]:
        """The next ones; none at the end. Raises NativeFailure."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        with self._lock:
            for path, data in self._texts:
                batch.append((path, data))
                size += len(data)
                if size >= _BATCH or len(batch) >= _FILES:
                    break
        return batch

    def close(self) -> None:
        with self._lock:
            self._texts.close()

    def _read(self) -> Generator[tuple[str, bytes], None, None]:
        with self._workspace.open(self._search.path) as start:
            if not start.is_folder:
                data = read_whole(start)
                if data is not None:
                    yield start.path, data
                return
            walk = Walk(self._workspace, start, self.leash)
            for entry in walk:
                if entry.is_file and (self._search.glob is None or self._search.glob(entry.below)):
                    data = self._text_of(entry)
                    if data is not None:
                        yield entry.path, data
            self.cut |= walk.cut

    def _text_of(self, entry: Entry) -> bytes | None:
        try:
            fd = entry.open()
        except OSError:
            self.cut = True
            return None
        try:
            return read_whole(Opened(fd, entry.path, os.fstat(fd)))
        finally:
            os.close(fd)
