"""``list_dir`` and ``find_files``: what lies in the workspace."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from toolyard.agents.builtin_tools.bounded_thread import Leash
from toolyard.agents.builtin_tools.directory_walk import Entry, Walk
from toolyard.agents.builtin_tools.display_paths import shown
from toolyard.agents.builtin_tools.path_globs import glob
from toolyard.agents.builtin_tools.workspace import KINDS, Workspace

__all__ = ["find", "list_folder"]

_LOOKED = 200_000
"""Entries that are counted beyond those that are shown."""


def list_folder(workspace: Workspace, path: str, most: int, room: int, leash: Leash) -> str:
    """What lies in one folder, by name: folders with a slash, files with their size. Raises NativeFailure."""
    with workspace.folder(path) as start:
        walk = Walk(workspace, start, leash, deep=False)
        page = _Page(most, room)
        for entry in walk:
            page.add(_told(entry))
        return page.text(f"{shown(start.path)} is empty", walk.cut)


def find(workspace: Workspace, pattern: str, path: str, most: int, room: int, leash: Leash) -> str:
    """The paths of files below a folder that fit a glob, by name. Raises NativeFailure."""
    fits = glob(pattern)
    with workspace.folder(path) as start:
        walk = Walk(workspace, start, leash)
        page = _Page(most, room)
        for entry in walk:
            if entry.is_file and fits(entry.below):
                page.add(shown(entry.path))
            if page.left_out > _LOOKED:
                walk.cut = True
                break
        return page.text(f"no file below {shown(start.path)} fits '{shown(pattern)}'", walk.cut)


class _Page:
    """Lines, as many as there is room for, and how many more there would be."""

    def __init__(self, most: int, room: int) -> None:
        self._most = most
        self._room = room
        self._lines: list[str] = []
        self.left_out = 0

    def add(self, line: str) -> None:
        if self.left_out or len(self._lines) >= self._most or len(line) + 1 > self._room:
            self.left_out += 1
            return
        self._lines.append(line)
        self._room -= len(line) + 1

    def text(self, otherwise: str, cut: bool) -> str:
        return "\n".join((*self._lines, *self._notes(otherwise, cut)))

    def _notes(self, otherwise: str, cut: bool) -> Iterable[str]:
        if not self._lines and not self.left_out:
            yield otherwise
        if self.left_out:
            yield f"({self.left_out:,} more are not shown; ask for less at once)"
        if cut:
            yield "(not everything could be looked at, so there may be more)"


def _told(entry: Entry) -> str:
    name = shown(entry.name)
    if entry.is_folder:
        return f"{name}/"
    try:
        info = entry.info()
    except OSError:
        return f"{name}  (cannot be looked at)"
    if stat.S_ISREG(info.st_mode):
        return f"{name}  {info.st_size:,} bytes"
    if stat.S_ISLNK(info.st_mode):
        return f"{name}  -> {shown(_target(entry))}"
    return f"{name}  ({KINDS.get(stat.S_IFMT(info.st_mode), 'something special')})"


def _target(entry: Entry) -> str:
    try:
        return os.readlink(entry.name, dir_fd=entry.folder)
    except OSError:
        return "?"
