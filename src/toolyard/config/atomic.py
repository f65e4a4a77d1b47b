"""Replace a file as one step, on disk before anybody is told."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["write_private", "write_whole"]


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
