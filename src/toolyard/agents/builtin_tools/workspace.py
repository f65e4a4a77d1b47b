"""The folder that native tools may read, and no way out of it.

A path is walked one name at a time, each opened below the descriptor of the one before and never through a
link. A link is read and walked in the same way, from within; ``..`` goes back to a descriptor that is still
held. So nothing outside is ever opened, whatever is renamed or replaced meanwhile.
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

from toolyard.agents.builtin_tools.display_paths import as_given, shown
from toolyard.agents.builtin_tools.tool_error import NativeFailure
from toolyard.agents.builtin_tools.virtual_filesystems import pseudo_devices

__all__ = ["FILE", "FOLDER", "KINDS", "Opened", "Workspace", "can_confine"]

_LINKS = 40
_DEPTH = 128
_LONGEST = 4096
_SHOWN = 200
FOLDER = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
)
"""How a folder below another is opened."""
FILE = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    # Nobody may keep us waiting, or become our terminal, by putting something else in a file's place.
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
"""How a file below a folder is opened."""
KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
"""What is neither file nor folder, in words."""


def can_confine() -> bool:
    """Whether this system can open files below a descriptor, which confinement needs."""
    return os.open in os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")


@dataclass(frozen=True, slots=True)
class Opened:
    """A file or folder inside the workspace, open for reading."""

    fd: int
    path: str
    """From the root, with slashes; ``.`` is the root itself."""
    info: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)


class Workspace:
    """Opens what lies in a folder. ``hidden`` is one that is never opened, wherever it lies: the data
    directory. Its files are not opened by another name (a hard link) either."""

    def __init__(self, root: Path, hidden: Path | None = None) -> None:
        self.root = root
        self._hidden = hidden
        self._bases = tuple(dict.fromkeys((str(root), os.path.realpath(root))))
        self._pseudo = pseudo_devices()

    @contextmanager
    def open(self, path: str) -> Generator[Opened]:
        """A file or folder by its path from the root, or from ``/`` where that leads into the workspace.

        Raises NativeFailure for what is not there, not inside, or neither file nor folder.
        """
        *others, last = as_given(path)
        for each in others:
            walk = _Walk(self, self._parts(each))
            try:
                found = walk.walk()
            except (NativeFailure, OSError, ValueError):
                walk.close()
                continue
            with closing(walk):
                yield found
            return
        with closing(_Walk(self, self._parts(last))) as walk:
            try:
                found = walk.walk()
            except (OSError, ValueError) as error:
                raise NativeFailure(f"'{shown(last[:_SHOWN])}' {_words(error)}") from None
            yield found

    @contextmanager
    def folder(self, path: str) -> Generator[Opened]:
        """A folder. Raises NativeFailure."""
        with self.open(path) as found:
            if not found.is_folder:
                raise NativeFailure(f"'{shown(path)}' is a file, not a folder")
            yield found

    @contextmanager
    def file(self, path: str) -> Generator[Opened]:
        """A file. Raises NativeFailure."""
        with self.open(path) as found:
            if found.is_folder:
                raise NativeFailure(f"'{shown(path)}' is a folder, not a file; list_dir lists it")
            yield found

    def excludes(self, info: os.stat_result) -> bool:
        """Whether something that lies inside must not be read all the same."""
        if info.st_dev in self._pseudo:
            return True
        hidden = self._hidden_id()
        if hidden is not None and (info.st_dev, info.st_ino) == hidden:
            return True
        return stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and self._is_hidden_file(info)

    def _is_hidden_file(self, info: os.stat_result) -> bool:
        """Compare with each file of the data directory. They all lie in the folder itself; links in package
        stores and worktrees lead elsewhere and can be read."""
        if self._hidden is None:
            return False
        try:
            with os.scandir(self._hidden) as entries:
                same = [entry for entry in entries if entry.inode() == info.st_ino]
                return any(entry.stat(follow_symlinks=False).st_dev == info.st_dev for entry in same)
        except OSError:
            return False

    def _hidden_id(self) -> tuple[int, int] | None:
        if self._hidden is None:
            return None
        try:
            found = os.stat(self._hidden)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _parts(self, path: str) -> list[str]:
        if len(path) > _LONGEST:
            raise NativeFailure(f"a path has at most {_LONGEST:,} characters")
        inside = self.inside(path)
        if inside is None:
            where = shown(path[:_SHOWN])
            raise NativeFailure(f"'{where}' is outside the workspace; give a path from its root, as src/app")
        return inside.split("/")

    def inside(self, path: str) -> str | None:
        """A path from the root; None for one from ``/`` that does not lead there."""
        if not path.startswith("/"):
            return path
        for base in self._bases:
            if path == base or path.startswith(base.rstrip("/") + "/"):
                return path[len(base) :].lstrip("/")
        return None

    def enter(self) -> int:
        """The root's descriptor. Raises NativeFailure."""
        try:
            fd = os.open(self.root, FOLDER & ~getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise NativeFailure(f"the workspace cannot be read: its root {_words(error)}") from None
        if self.excludes(os.fstat(fd)):
            os.close(fd)
            raise NativeFailure("the workspace cannot be read: its root is the data directory")
        return fd


class _Walk:
    """The way to one path: the descriptors from the root to here, and the names that are still to come."""

    def __init__(self, workspace: Workspace, parts: list[str]) -> None:
        self._workspace = workspace
        self._todo = deque(parts)
        self._names: list[str] = []
        self._fds: list[int] = []
        self._links = 0

    def close(self) -> None:
        self._shorten_to(0)

    def walk(self) -> Opened:
        self._fds.append(self._workspace.enter())
        while self._todo:
            part = self._todo.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                self._back()
                continue
            info = os.stat(part, dir_fd=self._fds[-1], follow_symlinks=False)
            if stat.S_ISLNK(info.st_mode):
                self._follow(part)
            elif stat.S_ISDIR(info.st_mode):
                self._enter(part)
            else:
                return self._file(part, info)
        return Opened(self._fds[-1], "/".join(self._names) or ".", os.fstat(self._fds[-1]))

    def _back(self) -> None:
        if not self._names:
            raise _Left("leads out of the workspace")
        self._names.pop()
        self._shorten_to(len(self._fds) - 1)

    def _follow(self, part: str) -> None:
        self._links += 1
        if self._links > _LINKS:
            raise _Left("leads through too many links")
        target = os.readlink(part, dir_fd=self._fds[-1])
        inside = self._workspace.inside(target)
        if inside is None:
            raise _Left("is a link that leads out of the workspace")
        if target.startswith("/"):
            del self._names[:]
            self._shorten_to(1)
        self._todo.extendleft(reversed(inside.split("/")))

    def _enter(self, part: str) -> None:
        if len(self._names) >= _DEPTH:
            raise _Left(f"lies more than {_DEPTH} folders deep")
        self._fds.append(os.open(part, FOLDER, dir_fd=self._fds[-1]))
        self._names.append(part)
        self._check(os.fstat(self._fds[-1]))

    def _file(self, part: str, before: os.stat_result) -> Opened:
        if any(each not in ("", ".") for each in self._todo):
            raise NotADirectoryError(errno.ENOTDIR, "a name in the middle is no folder")
        # Devices and pipes notice when they are opened, so they are told apart before that.
        self._check_kind(before)
        self._fds.append(os.open(part, FILE, dir_fd=self._fds[-1]))
        info = os.fstat(self._fds[-1])
        self._check_kind(info)
        self._check(info)
        return Opened(self._fds[-1], "/".join((*self._names, part)), info)

    def _check_kind(self, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise _Left(f"is {KINDS.get(stat.S_IFMT(info.st_mode), 'something special')}, not a file")

    def _check(self, info: os.stat_result) -> None:
        if self._workspace.excludes(info):
            raise _Left("is not part of the workspace")

    def _shorten_to(self, length: int) -> None:
        while len(self._fds) > length:
            os.close(self._fds.pop())


class _Left(ValueError):
    """Not inside, or not to be read."""


def _words(error: OSError | ValueError) -> str:
    if isinstance(error, _Left):
        return str(error)
    if isinstance(error, UnicodeError) or not isinstance(error, OSError):
        return "is no path"
    return {
        errno.ENOENT: "does not exist",
        errno.ENOTDIR: "does not exist: a name in the middle is no folder",
        errno.ENAMETOOLONG: "is too long",
        errno.EACCES: "may not be read by this process",
        errno.EPERM: "may not be read by this process",
        # What was a folder or a file a moment ago is a link now.
        errno.ELOOP: "was replaced while it was read; try again",
    }.get(error.errno or 0, f"cannot be read: {os.strerror(error.errno or 0)}")
