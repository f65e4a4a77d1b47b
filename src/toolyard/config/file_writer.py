"""Replace a file as one step, on disk before anybody is told, and without undoing what others write."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["write_backup"]


if sys.platform != "win32":
    import fcntl

__all__ = ["create_private_file", "lock_for_editing", "write_atomically", "write_private_file"]

_LOCK_TIMEOUT_SECONDS = 10.0
_LOCK_POLL_SECONDS = 0.02
_MAX_SYMLINKS = 40


def write_private_file(path: Path, content: bytes) -> None:
    """As ``write_whole``, readable by its owner only, since it may hold secrets."""
    write_atomically(path, content, 0o600)


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write ``content`` so that a reader sees the old file or the new one, and nothing between.

    A link is followed, so that it stays a link, unless another user made it. A file that is replaced keeps
    its owner, and its permissions as far as ``mode`` allows. Raises OSError where the folder cannot be
    written, and where something else than a file is there.
    """
    target = _resolve_link(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    before = _stat_regular_file(target)
    if before is not None:
        mode &= stat.S_IMODE(before.st_mode) | stat.S_IRUSR | stat.S_IWUSR
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if before is not None:
                _copy_ownership(file.fileno(), before, mode)
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(target.parent)


def create_private_file(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read. Raises FileExistsError where anything has that name, even a
    link that leads nowhere."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


@contextmanager
def lock_for_editing(path: Path) -> Generator[None]:
    """Be the only one, of all processes and threads, that reads the file in order to write it. May wait; what
    is done within must be short. Raises TimeoutError where another does not come to an end."""
    if sys.platform == "win32":
        yield
        return
    folder = os.path.dirname(os.path.realpath(path))
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:  # It is not there yet, so that nobody else reads in it.
        yield
        return
    try:
        _acquire_lock(held, folder)
        yield
    finally:
        os.close(held)


def _resolve_link(path: Path) -> Path:
    """Return the file that a path leads to. Raises PermissionError for a link that another user made: in a
    folder that several users can write to, it could lead to any file of ours."""
    for _ in range(_MAX_SYMLINKS):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            break
        if not stat.S_ISLNK(found.st_mode):
            break
        if sys.platform != "win32" and found.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "this link belongs to another user", str(path))
        path = path.parent / os.readlink(path)
    return Path(os.path.realpath(path))


def _stat_regular_file(target: Path) -> os.stat_result | None:
    """Return the status of the file that is replaced; None where there is none. Raises OSError for a folder,
    a pipe or a device."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(target))
    return found


def _copy_ownership(handle: int, replaced: os.stat_result, mode: int) -> None:
    if sys.platform == "win32":
        return
    if (replaced.st_uid, replaced.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(OSError):
            os.fchown(handle, replaced.st_uid, replaced.st_gid)
    os.fchmod(handle, mode)


def _acquire_lock(handle: int, folder: str) -> None:
    ends = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > ends:
                why = (
                    f"another program has been writing there for over {_LOCK_TIMEOUT_SECONDS:g} s; "
                    "end it, or try again"
                )
                raise TimeoutError(errno.ETIMEDOUT, why, folder) from None
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError:  # Some network file systems have no locks; there nobody waits.
            return


def _sync_folder(folder: Path) -> None:
    """Have the folder itself on disk: until then a crash may bring the old file back."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_backup(target: Path, content: bytes, now: datetime | None = None) -> Path:
    """Write it beside the file, readable by its owner only. Raises OSError where that cannot be done."""
    name = f"{target.name}.bak-{now or datetime.now(UTC):%Y%m%d%H%M%S}"
    backup, number = target.with_name(name), 1
    while True:
        try:
            create_private_file(backup, content)
        except FileExistsError:
            number += 1
            backup = target.with_name(f"{name}-{number}")
        else:
            return backup
