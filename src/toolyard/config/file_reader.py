"""Read small text files written by users or other programs, safely."""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path

from toolyard.errors import ConfigError, Problem

__all__ = [
    "MAX_CLIENT_FILE_BYTES",
    "MAX_CONFIG_BYTES",
    "decode_utf8",
    "encode_like",
    "is_exposed",
    "read_regular_file",
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
