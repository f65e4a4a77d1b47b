"""A walk through a folder of the workspace: everything below it, in order, never through a link."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.workspace import FILE_OPEN_FLAGS, FOLDER_OPEN_FLAGS, OpenedPath, Workspace

__all__ = ["DirectoryWalk", "WalkEntry"]

SKIPPED_FOLDER_NAME = ".git"
_MAX_DEPTH = 64
_MAX_FOLDER_ENTRIES = 100_000
"""Names of one folder that are looked at. More is no folder that somebody wrote."""


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """Something in a folder. Good until the walk goes on, which holds the descriptor that it stands below."""

    name: str
    path: str
    """From the workspace's root."""
    relative_path: str
    """From where the walk began."""
    parent_fd: int
    is_folder: bool
    is_file: bool

    def read_stat(self) -> os.stat_result:
        """Of itself, where it is a link. Raises OSError."""
        return os.stat(self.name, dir_fd=self.parent_fd, follow_symlinks=False)

    def open(self) -> int:
        """The descriptor of a file, to be closed by whoever asked. Raises OSError."""
        return os.open(self.name, FILE_OPEN_FLAGS, dir_fd=self.parent_fd)


class DirectoryWalk:
    """Depth first, by the bytes of names, so that two walks of one tree agree. It stays on one file system,
    and leaves out ``.git`` and what the workspace excludes. ``cut`` says that it saw less than there is."""

    def __init__(
        self,
        workspace: Workspace,
        start: OpenedPath,
        cancellation: CancellationToken,
        *,
        recursive: bool = True,
    ) -> None:
        self.is_incomplete = False
        self._workspace = workspace
        self._start = start
        self._cancellation = cancellation
        self._recursive = recursive

    def __iter__(self) -> Iterator[WalkEntry]:
        start = self._start
        return self._walk_folder(start.fd, "" if start.path == "." else f"{start.path}/", "", 0)

    def _walk_folder(self, folder_fd: int, path: str, relative_path: str, depth: int) -> Generator[WalkEntry]:
        for each in self._list_entries(folder_fd):
            if self._cancellation.should_stop:
                self.is_incomplete = True
                return
            is_folder = _is_folder(each)
            entry = WalkEntry(
                each.name, path + each.name, relative_path + each.name, folder_fd, is_folder, _is_file(each)
            )
            if not is_folder:
                yield entry
                continue
            fd = self._open_folder(folder_fd, each.name)
            if fd is None:
                continue
            try:
                yield entry
                if self._recursive and depth < _MAX_DEPTH:
                    inside = self._walk_folder(fd, f"{entry.path}/", f"{entry.relative_path}/", depth + 1)
                    with closing(inside):
                        yield from inside
                elif self._recursive:
                    self.is_incomplete = True
            finally:
                os.close(fd)

    def _list_entries(self, folder_fd: int) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder_fd) as entries:
                for each in entries:
                    if each.name != SKIPPED_FOLDER_NAME:
                        found.append(each)
                    if len(found) > _MAX_FOLDER_ENTRIES or self._cancellation.should_stop:
                        self.is_incomplete = True
                        break
        except OSError:
            self.is_incomplete = True
        return sorted(found, key=lambda each: os.fsencode(each.name))

    def _open_folder(self, parent_fd: int, name: str) -> int | None:
        """A folder's descriptor; None for one that is not to be read."""
        try:
            fd = os.open(name, FOLDER_OPEN_FLAGS, dir_fd=parent_fd)
        except OSError:
            self.is_incomplete = True
            return None
        info = os.fstat(fd)
        if info.st_dev == self._start.stat_result.st_dev and not self._workspace.excludes(info):
            return fd
        os.close(fd)
        return None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False
