"""Replace a file as one step, on disk before anybody is told, and without undoing what others write."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["editing", "write_private", "write_whole"]

_PATIENCE = 10.0
_LOOK_AGAIN = 0.02


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
    _keep_names(target.parent)


@contextmanager
def editing(path: Path) -> Generator[None]:
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
        _lock(held, folder)
        yield
    finally:
        os.close(held)


def _lock(held: int, folder: str) -> None:
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > ends:
                why = f"another program has been writing there for over {_PATIENCE:g} s; end it, or try again"
                raise TimeoutError(errno.ETIMEDOUT, why, folder) from None
            time.sleep(_LOOK_AGAIN)
        except OSError:  # Some network file systems have no locks; there nobody waits.
            return


def _keep_names(folder: Path) -> None:
    """Have the folder itself on disk: until then a crash may bring the old file back."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
