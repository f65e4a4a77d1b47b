"""Read small files written by users or other programs safely, and write files atomically and durably, with a
lock against concurrent edits.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from toolyard.errors import ConfigError, Problem

__all__ = [
    "MAX_CLIENT_FILE_BYTES",
    "MAX_CONFIG_BYTES",
    "create_private_file",
    "decode_utf8",
    "encode_like",
    "ensure_private_file",
    "is_exposed",
    "lock_for_editing",
    "read_if_exists",
    "read_regular_file",
    "read_text_file",
    "remove_stale_temporary_files",
    "replace_unchanged_file",
    "write_atomically",
    "write_backup",
    "write_private_file",
]


MAX_CONFIG_BYTES = 4 * 1024 * 1024
MAX_CLIENT_FILE_BYTES = 8 * MAX_CONFIG_BYTES
"""Limit for files of other clients, some of which store their chat history beside the servers."""


def read_regular_file(
    path: Path, *, missing_hint: str | None = None, max_bytes: int = MAX_CONFIG_BYTES
) -> bytes:
    """Return the content of a regular file of at most ``max_bytes``.

    Raises ConfigError with the path for a missing file (with ``missing_hint``), a directory, a loop of
    symbolic links, a pipe or device (which might never end), and a file that is too large.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _file_error(path, "expected a file, found a directory", "give the path of a file in it")
        if not stat.S_ISREG(status.st_mode):
            message = "expected a regular file, found a pipe, socket or device"
            raise _file_error(path, message, "copy its content to a regular file")
        # The path may have been replaced by a pipe since: O_NONBLOCK prevents waiting for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            # Check the opened file again, because the path may have changed between stat and open.
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _file_error(path, "the file was replaced while it was opened", "run the command again")
            # One byte more than allowed detects a file that is too large, without trusting st_size.
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise _convert_os_error(path, error, missing_hint) from error
    except ValueError as error:
        raise _file_error(path, "the path contains a NUL character") from error
    if len(content) > max_bytes:
        size = max(status.st_size, len(content))
        message = f"the file has {size:,} bytes; the limit is {max_bytes:,}"
        raise _file_error(path, message, "check that this is a configuration file")
    return content


def decode_utf8(content: bytes, name: str | None = None) -> str:
    """Decode UTF-8, with or without a byte order mark.

    Raises ConfigError with the line of an invalid byte.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = Problem("the text is not valid UTF-8", file=name, line=line, hint="save it as UTF-8")
        raise ConfigError([problem]) from error


def read_text_file(path: Path, *, max_bytes: int = MAX_CONFIG_BYTES) -> str:
    """Return the text of a regular file of at most ``max_bytes``. Raises ConfigError."""
    return decode_utf8(read_regular_file(path, max_bytes=max_bytes), str(path))


def is_exposed(path: Path) -> bool:
    """Return whether all users of this machine can read a file: by its own mode and those of its folders.

    Secrets of containers (``/run/secrets``) are excepted: their mode is 0444, and there are no other users.
    """
    real = Path(os.path.realpath(path))
    if os.name == "nt" or real.is_relative_to("/run/secrets"):
        return False
    try:
        status = real.stat()
        is_readable = stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH)
        return is_readable and all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
    except OSError:
        return False


def encode_like(text: str, before: bytes | None) -> bytes:
    """Encode the new text of a file as UTF-8, with a byte order mark if the old content has one."""
    has_mark = before is not None and before.startswith(codecs.BOM_UTF8)
    return text.encode("utf-8-sig" if has_mark else "utf-8")


def _convert_os_error(path: Path, error: OSError, missing_hint: str | None) -> ConfigError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        if path.is_symlink():
            return _file_error(path, "the link leads to a file that does not exist", "remove the link")
        return _file_error(path, "the file does not exist", missing_hint)
    if error.errno == errno.ELOOP:
        return _file_error(path, "the symbolic links form a loop", "point the link to a file")
    if isinstance(error, PermissionError):
        return _file_error(path, "no permission to read the file", "check its owner and permissions")
    return _file_error(path, f"the file cannot be read: {error.strerror or type(error).__name__}")


def _file_error(path: Path, message: str, hint: str | None = None) -> ConfigError:
    return ConfigError([Problem(message, file=str(path), hint=hint)])


if sys.platform != "win32":
    import fcntl


_LOCK_TIMEOUT_SECONDS = 10.0
_LOCK_POLL_SECONDS = 0.02
_MAX_SYMLINKS = 40
_TEMPORARY_NAME = re.compile(r"\..+\.[0-9a-f]{12}")


def write_private_file(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by its owner only, because it may contain secrets."""
    write_atomically(path, content, 0o600)


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Replace a file so that readers see either the old or the new content, also after a crash.

    A symbolic link is followed, so that it remains a link, unless another user created it. The new file keeps
    the owner of the old one, and its permissions as far as ``mode`` allows. Raises OSError if the folder
    cannot be written, or the path is not a regular file or is read-only.
    """
    target = _resolve_link(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    before = _stat_regular_file(target)
    if before is not None:
        mode &= stat.S_IMODE(before.st_mode) | stat.S_IRUSR | stat.S_IWUSR
    # A temporary file in the same folder is on the same file system, so the rename below is atomic. Its
    # content is synced before the rename: otherwise a crash could leave an empty file under the final name.
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


def remove_stale_temporary_files(folder: Path, min_age_seconds: float = 3600.0) -> None:
    """Remove temporary files of ``write_atomically`` that a killed process of this user left in a folder."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if not _TEMPORARY_NAME.fullmatch(entry.name):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                is_own = sys.platform == "win32" or status.st_uid == os.geteuid()
                is_old = time.time() - status.st_mtime > min_age_seconds
                if stat.S_ISREG(status.st_mode) and is_own and is_old:
                    os.unlink(entry.path)


def create_private_file(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read.

    Raises FileExistsError if the name is in use, even by a dangling link, and OSError, for example if the
    disk is full; no file is left then.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def ensure_private_file(path: Path) -> os.stat_result:
    """Create an empty file and its folder, unless they exist, and let only the owner read it.

    For databases: SQLite would create the file readable by others, and gives its side files the same mode.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        status = os.fstat(descriptor)
        if os.name != "nt" and status.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return status


@contextmanager
def lock_for_editing(path: Path, timeout_seconds: float = _LOCK_TIMEOUT_SECONDS) -> Generator[None]:
    """Hold an exclusive lock, across processes and threads, while a file is read, changed and written.

    Blocks until the lock is free, so keep the body short. Raises TimeoutError after ``timeout_seconds``.
    """
    if sys.platform == "win32":
        yield
        return
    # The folder is locked, not the file: an atomic write replaces the file, and with it a lock on it.
    folder = os.path.dirname(os.path.realpath(path))
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # The folder does not exist yet, so no other process edits a file in it.
        yield
        return
    try:
        _acquire_lock(handle, folder, timeout_seconds)
        yield
    finally:
        os.close(handle)


def _resolve_link(path: Path) -> Path:
    """Follow symbolic links and return the final path.

    Raises PermissionError for a link of another user: in a folder writable by several users, it could
    redirect the write to any of our files.
    """
    for _ in range(_MAX_SYMLINKS):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            break
        if not stat.S_ISLNK(status.st_mode):
            break
        if sys.platform != "win32" and status.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "this link belongs to another user", str(path))
        path = path.parent / os.readlink(path)
    return Path(os.path.realpath(path))


def _stat_regular_file(target: Path) -> os.stat_result | None:
    """Return the status of an existing file, or None.

    Raises OSError for a folder, a pipe, a device or a file that we may not write.
    """
    try:
        status = os.lstat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "this is not a regular file", str(target))
    # Renaming needs no permission for the file itself, so it would replace a file that its owner protected.
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(target))
    return status


def _copy_ownership(handle: int, replaced: os.stat_result, mode: int) -> None:
    if sys.platform == "win32":
        return
    # Only root can change the owner. Without that right the file is written all the same, with our own id.
    if (replaced.st_uid, replaced.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(OSError):
            os.fchown(handle, replaced.st_uid, replaced.st_gid)
    os.fchmod(handle, mode)


def _acquire_lock(handle: int, folder: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                message = (
                    f"another program has been writing there for over {timeout_seconds:g} s; "
                    "stop it, or try again"
                )
                raise TimeoutError(errno.ETIMEDOUT, message, folder) from None
            time.sleep(_LOCK_POLL_SECONDS)
        except OSError:  # Some network file systems do not support locks: continue without one.
            return


def _sync_folder(folder: Path) -> None:
    """Flush the folder to disk: until then a crash may undo the rename and restore the old file."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_backup(target: Path, content: bytes, now: datetime | None = None) -> Path:
    """Write ``content`` to a new file ``NAME.bak-TIME`` beside the target, readable by its owner only.

    Returns the path of the backup. Raises OSError if it cannot be written.
    """
    # Several backups within one second get a number. Creating exclusively never overwrites an older backup.
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


def read_if_exists(path: Path, *, max_bytes: int = MAX_CONFIG_BYTES) -> bytes | None:
    """Return the content of a regular file, or None if there is none. Raises ConfigError."""
    # lexists: a dangling link is a mistake to report, not a missing file.
    return read_regular_file(path, max_bytes=max_bytes) if os.path.lexists(path) else None


def replace_unchanged_file(
    target: Path, before: bytes | None, after: bytes, changed: Problem, *, private: bool, now: datetime | None
) -> Path | None:
    """Write a file and return the path of a backup of ``before``, or None for a new file.

    With ``private`` only the owner can read it; otherwise it keeps its permissions. Raises ConfigError with
    the problem ``changed`` if its content is no longer ``before``: a person may have confirmed a plan while
    another program edited the file. Raises OSError if it cannot be written; no backup is left then.
    """
    with lock_for_editing(target):
        if read_if_exists(target, max_bytes=MAX_CLIENT_FILE_BYTES) != before:
            raise ConfigError([changed])
        backup = None if before is None else write_backup(target, before, now)
        try:
            write_atomically(target, after, 0o600 if private else 0o7777)
        except BaseException:
            if backup is not None:
                backup.unlink(missing_ok=True)
            raise
    return backup
