"""A walk through a folder of the workspace: everything below it, in order, never through a link."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

from toolyard.agents.builtin_tools.bounded_thread import Leash
from toolyard.agents.builtin_tools.workspace import FILE, FOLDER, Opened, Workspace

__all__ = ["Entry", "Walk"]

SKIPPED = ".git"
_DEPTH = 64
_IN_ONE = 100_000
"""Names of one folder that are looked at. More is no folder that somebody wrote."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a folder. Good until the walk goes on, which holds the descriptor that it stands below."""

    name: str
    path: str
    """From the workspace's root."""
    below: str
    """From where the walk began."""
    folder: int
    is_folder: bool
    is_file: bool

    def info(self) -> os.stat_result:
        """Of itself, where it is a link. Raises OSError."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)

    def open(self) -> int:
        """The descriptor of a file, to be closed by whoever asked. Raises OSError."""
        return os.open(self.name, FILE, dir_fd=self.folder)


class Walk:
    """Depth first, by the bytes of names, so that two walks of one tree agree. It stays on one file system,
    and leaves out ``.git`` and what the workspace excludes. ``cut`` says that it saw less than there is."""

    def __init__(self, workspace: Workspace, start: Opened, leash: Leash, *, deep: bool = True) -> None:
        self.cut = False
        self._workspace = workspace
        self._start = start
        self._leash = leash
        self._deep = deep

    def __iter__(self) -> Iterator[Entry]:
        start = self._start
        return self._below(start.fd, "" if start.path == "." else f"{start.path}/", "", 0)

    def _below(self, folder: int, path: str, below: str, depth: int) -> Generator[Entry]:
        for each in self._listed(folder):
            if self._leash.over:
                self.cut = True
                return
            is_folder = _is_folder(each)
            entry = Entry(each.name, path + each.name, below + each.name, folder, is_folder, _is_file(each))
            if not is_folder:
                yield entry
                continue
            fd = self._entered(folder, each.name)
            if fd is None:
                continue
            try:
                yield entry
                if self._deep and depth < _DEPTH:
                    inside = self._below(fd, f"{entry.path}/", f"{entry.below}/", depth + 1)
                    with closing(inside):
                        yield from inside
                elif self._deep:
                    self.cut = True
            finally:
                os.close(fd)

    def _listed(self, folder: int) -> list[os.DirEntry[str]]:
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as entries:
                for each in entries:
                    if each.name != SKIPPED:
                        found.append(each)
                    if len(found) > _IN_ONE or self._leash.over:
                        self.cut = True
                        break
        except OSError:
            self.cut = True
        return sorted(found, key=lambda each: os.fsencode(each.name))

    def _entered(self, folder: int, name: str) -> int | None:
        """A folder's descriptor; None for one that is not to be read."""
        try:
            fd = os.open(name, FOLDER, dir_fd=folder)
        except OSError:
            self.cut = True
            return None
        info = os.fstat(fd)
        if info.st_dev == self._start.info.st_dev and not self._workspace.excludes(info):
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
