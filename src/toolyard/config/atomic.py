"""Replace a file as one step, on disk before anybody is told, and without undoing what others write."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["editing", "write_private", "write_whole"]


def write_private(path: Path, content: bytes) -> None:
    """As ``write_whole``, readable by its owner only, since it may hold secrets."""
    write_whole(path, content, 0o600)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write ``content`` so that a reader sees the old file or the new one, and nothing between.

    A link is followed, so that it stays a link. Raises OSError where the folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextmanager
def editing(path: Path) -> Generator[None]:
    """Be the only one, of all processes and threads, that reads the file in order to write it. May wait; what
    is done within must be short."""
    if sys.platform == "win32":
        yield
        return
    held = -1
    # Where the folder cannot be locked, as in some network file systems, or is not there yet, nobody waits.
    with suppress(OSError):
        held = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if held >= 0:
            os.close(held)
