"""Open files and folders of the workspace without ever leaving it.

A path is resolved one name at a time. Each name is opened relative to the descriptor of its parent, never
through a symbolic link; a link's target is read and resolved in the same way. ``..`` returns to a descriptor
that is still open. So nothing outside is ever opened, even if files are renamed or replaced concurrently.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolyard.agents.builtin_tools.display_paths import candidate_paths, escape_path
from toolyard.agents.builtin_tools.tool_error import NativeToolError

__all__ = [
    "FILE_OPEN_FLAGS",
    "FOLDER_OPEN_FLAGS",
    "SPECIAL_FILE_DESCRIPTIONS",
    "OpenedPath",
    "Workspace",
    "can_confine",
    "virtual_device_ids",
]


_VIRTUAL_FILESYSTEM_NAMES = """
autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl hugetlbfs mqueue nsfs
proc pstore rpc_pipefs securityfs selinuxfs sysfs tracefs
"""
_VIRTUAL_FILESYSTEMS = frozenset(_VIRTUAL_FILESYSTEM_NAMES.split())
_MOUNT_TABLE_PATH = Path("/proc/self/mountinfo")
_DEVICE_FOLDER = "/dev"


def virtual_device_ids() -> frozenset[int]:
    """Return the devices (``st_dev``) of all mounted virtual file systems, such as proc and sysfs."""
    try:
        lines = _MOUNT_TABLE_PATH.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return frozenset({os.stat(_DEVICE_FOLDER).st_dev}) if os.path.ismount(_DEVICE_FOLDER) else frozenset()
    return frozenset(device for line in lines if (device := _parse_virtual_device(line)) is not None)


def _parse_virtual_device(line: str) -> int | None:
    """Return the device of a mountinfo line (``36 35 98:0 / /mnt rw - proc proc rw``) of a virtual file
    system.
    """
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 3 or not kind or kind[0] not in _VIRTUAL_FILESYSTEMS:
        return None
    major, _, minor = fields[2].partition(":")
    return os.makedev(int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


_MAX_LINKS = 40
_MAX_FOLDER_DEPTH = 128
_MAX_PATH_CHARACTERS = 4096
_MAX_QUOTED_CHARACTERS = 200
FOLDER_OPEN_FLAGS = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
)
"""Flags for opening a folder relative to its parent."""
FILE_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    # If a file is replaced by a pipe or terminal, opening it must neither block nor acquire a controlling
    # terminal.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
"""Flags for opening a file relative to its folder."""
SPECIAL_FILE_DESCRIPTIONS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
"""Descriptions of file types that are neither files nor folders."""


def can_confine() -> bool:
    """Return whether this system can open files relative to a descriptor, which confinement requires."""
    return os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")


@dataclass(frozen=True, slots=True)
class OpenedPath:
    """A file or folder inside the workspace, open for reading."""

    fd: int
    path: str
    """Relative to the root, with slashes; ``.`` is the root itself."""
    stat_result: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.stat_result.st_mode)


class Workspace:
    """Opens files below a root folder.

    ``excluded_folder``, the data directory, is never opened, wherever it is; nor are its files through hard
    links.
    """

    def __init__(self, root: Path, excluded_folder: Path | None = None) -> None:
        self.root = root
        self._excluded_folder = excluded_folder
        self._root_paths = tuple(dict.fromkeys((str(root), os.path.realpath(root))))
        self._virtual_devices = virtual_device_ids()

    @contextmanager
    def open(self, path: str) -> Generator[OpenedPath]:
        """Open a file or folder by its path relative to the root, or by an absolute path inside the
        workspace.

        Raises NativeToolError if it does not exist, is outside, or is neither file nor folder.
        """
        *others, last = candidate_paths(path)
        for each in others:
            walk = _PathResolver(self, self._split_path(each))
            try:
                found = walk.resolve()
            except (NativeToolError, OSError, ValueError):
                walk.close()
                continue
            with closing(walk):
                yield found
            return
        with closing(_PathResolver(self, self._split_path(last))) as walk:
            try:
                found = walk.resolve()
            except (OSError, ValueError) as error:
                raise NativeToolError(
                    f"'{escape_path(last[:_MAX_QUOTED_CHARACTERS])}' {_describe_error(error)}"
                ) from None
            yield found

    @contextmanager
    def open_folder(self, path: str) -> Generator[OpenedPath]:
        """Open a folder. Raises NativeToolError."""
        with self.open(path) as found:
            if not found.is_folder:
                raise NativeToolError(f"'{escape_path(path)}' is a file, not a folder")
            yield found

    @contextmanager
    def open_file(self, path: str) -> Generator[OpenedPath]:
        """Open a file. Raises NativeToolError."""
        with self.open(path) as found:
            if found.is_folder:
                raise NativeToolError(f"'{escape_path(path)}' is a folder, not a file; use list_dir")
            yield found

    def excludes(self, info: os.stat_result) -> bool:
        """Return whether a file or folder inside the workspace must not be read."""
        if info.st_dev in self._virtual_devices:
            return True
        hidden = self._excluded_folder_id()
        if hidden is not None and (info.st_dev, info.st_ino) == hidden:
            return True
        return stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and self._is_hidden_file(info)

    def _is_hidden_file(self, info: os.stat_result) -> bool:
        """Compare with each file of the data directory, to detect hard links to it.

        Toolyard's files are directly in that folder; those of servers in its folder ``servers`` are not
        compared. Other hard links, such as those of package stores, can be read.
        """
        if self._excluded_folder is None:
            return False
        try:
            with os.scandir(self._excluded_folder) as entries:
                same = [entry for entry in entries if entry.inode() == info.st_ino]
                return any(entry.stat(follow_symlinks=False).st_dev == info.st_dev for entry in same)
        except OSError:
            return False

    def _excluded_folder_id(self) -> tuple[int, int] | None:
        if self._excluded_folder is None:
            return None
        try:
            found = os.stat(self._excluded_folder)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _split_path(self, path: str) -> list[str]:
        if len(path) > _MAX_PATH_CHARACTERS:
            raise NativeToolError(f"the path is longer than {_MAX_PATH_CHARACTERS:,} characters")
        inside = self.relative_to_root(path)
        if inside is None:
            where = escape_path(path[:_MAX_QUOTED_CHARACTERS])
            raise NativeToolError(
                f"'{where}' is outside the workspace; use a path relative to its root, such as src/app"
            )
        return inside.split("/")

    def relative_to_root(self, path: str) -> str | None:
        """Return a path relative to the root; None for an absolute path outside of it."""
        if not path.startswith("/"):
            return path
        for base in self._root_paths:
            if path == base or path.startswith(base.rstrip("/") + "/"):
                return path[len(base) :].lstrip("/")
        return None

    def open_root(self) -> int:
        """Return a descriptor of the root. Raises NativeToolError."""
        try:
            # The root alone may be a symbolic link: the operator chose it.
            fd = os.open(self.root, FOLDER_OPEN_FLAGS & ~getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise NativeToolError(
                f"the workspace cannot be read: its root {_describe_error(error)}"
            ) from None
        if self.excludes(os.fstat(fd)):
            os.close(fd)
            raise NativeToolError("the workspace cannot be read: its root is the data directory")
        return fd


class _PathResolver:
    """Resolves one path, holding the descriptors from the root to the current folder and the remaining
    names.
    """

    def __init__(self, workspace: Workspace, parts: list[str]) -> None:
        self._workspace = workspace
        self._pending_parts = deque(parts)
        self._names: list[str] = []
        self._fds: list[int] = []
        self._link_count = 0

    def close(self) -> None:
        self._close_fds_beyond(0)

    def resolve(self) -> OpenedPath:
        self._fds.append(self._workspace.open_root())
        while self._pending_parts:
            part = self._pending_parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                self._go_to_parent()
                continue
            # Only a hint for the choice below: the entry may be replaced before it is opened. The opening
            # uses O_NOFOLLOW and checks again.
            info = os.stat(part, dir_fd=self._fds[-1], follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                self._follow_link(part)
            elif stat.S_ISDIR(info.st_mode):
                self._enter_folder(part)
            else:
                return self._open_file(part, info)
        return OpenedPath(self._fds[-1], "/".join(self._names) or ".", os.fstat(self._fds[-1]))

    def _go_to_parent(self) -> None:
        if not self._names:
            raise _PathRejected("points outside the workspace")
        self._names.pop()
        self._close_fds_beyond(len(self._fds) - 1)

    def _follow_link(self, part: str) -> None:
        self._link_count += 1
        if self._link_count > _MAX_LINKS:
            raise _PathRejected("contains too many symbolic links")
        # The target is resolved name by name like any other path. The kernel would follow it anywhere.
        target = os.readlink(part, dir_fd=self._fds[-1])
        inside = self._workspace.relative_to_root(target)
        if inside is None:
            raise _PathRejected("is a link that points outside the workspace")
        # An absolute target inside the workspace starts again at the root's descriptor, which cannot have
        # been replaced since.
        if target.startswith("/"):
            del self._names[:]
            self._close_fds_beyond(1)
        self._pending_parts.extendleft(reversed(inside.split("/")))

    def _enter_folder(self, part: str) -> None:
        if len(self._names) >= _MAX_FOLDER_DEPTH:
            raise _PathRejected(f"is nested more than {_MAX_FOLDER_DEPTH} folders deep")
        self._fds.append(os.open(part, FOLDER_OPEN_FLAGS, dir_fd=self._fds[-1]))
        self._names.append(part)
        self._check_not_excluded(os.fstat(self._fds[-1]))

    def _open_file(self, part: str, before: os.stat_result) -> OpenedPath:
        # The system refuses ``file/..`` and ``file/name``, and so does this.
        if any(each not in ("", ".") for each in self._pending_parts):
            raise NotADirectoryError(errno.ENOTDIR, "a parent is not a folder")
        # Opening a device or pipe has side effects, so the type is checked before opening, and again
        # afterwards in case the file was replaced.
        self._check_regular_file(before)
        self._fds.append(os.open(part, FILE_OPEN_FLAGS, dir_fd=self._fds[-1]))
        info = os.fstat(self._fds[-1])
        self._check_regular_file(info)
        self._check_not_excluded(info)
        return OpenedPath(self._fds[-1], "/".join((*self._names, part)), info)

    def _check_regular_file(self, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise _PathRejected(
                f"is {SPECIAL_FILE_DESCRIPTIONS.get(stat.S_IFMT(info.st_mode), 'a special file')}, not a file"
            )

    def _check_not_excluded(self, info: os.stat_result) -> None:
        if self._workspace.excludes(info):
            raise _PathRejected("is not part of the workspace")

    def _close_fds_beyond(self, length: int) -> None:
        while len(self._fds) > length:
            os.close(self._fds.pop())


class _PathRejected(ValueError):
    """Raised for a path that is outside the workspace or must not be read."""


def _describe_error(error: OSError | ValueError) -> str:
    if isinstance(error, _PathRejected):
        return str(error)
    if isinstance(error, UnicodeError) or not isinstance(error, OSError):
        return "is not a valid path"
    return {
        errno.ENOENT: "does not exist",
        errno.ENOTDIR: "does not exist: one of its parents is not a folder",
        errno.ENAMETOOLONG: "is too long",
        errno.EACCES: "cannot be read: permission denied",
        errno.EPERM: "cannot be read: permission denied",
        # A file or folder was replaced by a symbolic link after its type was checked.
        errno.ELOOP: "was replaced while it was read; try again",
    }.get(error.errno or 0, f"cannot be read: {os.strerror(error.errno or 0)}")
