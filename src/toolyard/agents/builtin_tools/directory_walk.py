"""Walk a folder of the workspace in a fixed order, without following links."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.workspace import FILE_OPEN_FLAGS, FOLDER_OPEN_FLAGS, OpenedPath, Workspace

__all__ = ["DirectoryWalk", "WalkEntry"]

SKIPPED_FOLDER_NAME = ".git"
_MAX_DEPTH = 64
_MAX_FOLDER_ENTRIES = 100_000
"""Maximum number of entries read from one folder."""


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """An entry of a folder. Valid until the walk continues, because the walk owns the parent's descriptor."""

    name: str
    path: str
    """Relative to the workspace root."""
    relative_path: str
    """Relative to the start of the walk."""
    parent_fd: int
    is_folder: bool
    is_file: bool

    def read_stat(self) -> os.stat_result:
        """Return the entry's status, that of the link itself for a link. Raises OSError."""
        return os.stat(self.name, dir_fd=self.parent_fd, follow_symlinks=False)

    def open(self) -> int:
        """Return a descriptor of a file; the caller closes it. Raises OSError."""
        return os.open(self.name, FILE_OPEN_FLAGS, dir_fd=self.parent_fd)


class DirectoryWalk:
    """Walks depth first, ordered by the bytes of names, so that two walks of one tree agree.

    It stays on one file system and skips ``.git`` and paths that the workspace excludes. ``is_incomplete`` is
    set when entries were skipped because of an error or a limit.
    """

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
            is_folder = _check_type(each.is_dir)
            entry = WalkEntry(
                each.name,
                path + each.name,
                relative_path + each.name,
                folder_fd,
                is_folder,
                _check_type(each.is_file),
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
                    # Closing the inner generator explicitly closes its descriptors if the walk is abandoned
                    # early.
                    with closing(inside):
                        yield from inside
                elif self._recursive:
                    self.is_incomplete = True
            finally:
                os.close(fd)

    def _list_entries(self, folder_fd: int) -> list[os.DirEntry[str]]:
        kept_entries: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder_fd) as entries:
                for each in entries:
                    if each.name != SKIPPED_FOLDER_NAME:
                        kept_entries.append(each)
                    if len(kept_entries) > _MAX_FOLDER_ENTRIES or self._cancellation.should_stop:
                        self.is_incomplete = True
                        break
        except OSError:
            self.is_incomplete = True
        return sorted(kept_entries, key=lambda each: os.fsencode(each.name))

    def _open_folder(self, parent_fd: int, name: str) -> int | None:
        """Return a folder's descriptor; None if it must not or cannot be read."""
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


def _check_type(has_type: Callable[..., bool]) -> bool:
    """Return the answer of a method of DirEntry; False for an entry that cannot be read."""
    try:
        return has_type(follow_symlinks=False)
    except OSError:
        return False
