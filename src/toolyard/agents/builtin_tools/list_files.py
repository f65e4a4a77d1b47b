"""``list_dir`` and ``find_files``: list files of the workspace."""

from __future__ import annotations

import os
import stat

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.directory_walk import DirectoryWalk, WalkEntry
from toolyard.agents.builtin_tools.display_paths import LinePage, escape_path
from toolyard.agents.builtin_tools.path_globs import compile_glob
from toolyard.agents.builtin_tools.workspace import SPECIAL_FILE_DESCRIPTIONS, Workspace

__all__ = ["find_files", "list_folder"]

_MAX_OMITTED_COUNT = 200_000
"""Maximum number of entries counted beyond those shown."""


def list_folder(
    workspace: Workspace, path: str, max_entries: int, max_characters: int, cancellation: CancellationToken
) -> str:
    """Return the entries of one folder by name: folders with a slash, files with their size.

    Raises NativeToolError.
    """
    with workspace.open_folder(path) as start:
        walk = DirectoryWalk(workspace, start, cancellation, recursive=False)
        page = LinePage(max_entries, max_characters)
        omitted = sum(not page.add(_describe_entry(entry)) for entry in walk)
        return _format_page(page, omitted, f"{escape_path(start.path)} is empty", walk.is_incomplete)


def find_files(
    workspace: Workspace,
    pattern: str,
    path: str,
    max_files: int,
    max_characters: int,
    cancellation: CancellationToken,
) -> str:
    """Return the paths of files below a folder that match a glob, sorted. Raises NativeToolError."""
    matches_glob = compile_glob(pattern)
    with workspace.open_folder(path) as start:
        walk = DirectoryWalk(workspace, start, cancellation)
        page, omitted = LinePage(max_files, max_characters), 0
        for entry in walk:
            if entry.is_file and matches_glob(entry.relative_path):
                omitted += not page.add(escape_path(entry.path))
            if omitted > _MAX_OMITTED_COUNT:
                walk.is_incomplete = True
                break
        empty_text = f"no file below {escape_path(start.path)} matches '{escape_path(pattern)}'"
        return _format_page(page, omitted, empty_text, walk.is_incomplete)


def _format_page(page: LinePage, omitted: int, empty_text: str, is_incomplete: bool) -> str:
    lines = page.lines if page.lines or omitted else [empty_text]
    if omitted:
        lines = [*lines, f"({omitted:,} more are not shown; narrow the request)"]
    if is_incomplete:
        lines = [*lines, "(some entries could not be read, so there may be more)"]
    return "\n".join(lines)


def _describe_entry(entry: WalkEntry) -> str:
    name = escape_path(entry.name)
    if entry.is_folder:
        return f"{name}/"
    try:
        info = entry.read_stat()
    except OSError:
        return f"{name}  (cannot be read)"
    if stat.S_ISREG(info.st_mode):
        return f"{name}  {info.st_size:,} bytes"
    if stat.S_ISLNK(info.st_mode):
        return f"{name}  -> {escape_path(_link_target(entry))}"
    return f"{name}  ({SPECIAL_FILE_DESCRIPTIONS.get(stat.S_IFMT(info.st_mode), 'a special file')})"


def _link_target(entry: WalkEntry) -> str:
    try:
        return os.readlink(entry.name, dir_fd=entry.parent_fd)
    except OSError:
        return "?"
