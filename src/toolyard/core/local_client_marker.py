"""Marker in the data directory that a client of ``toolyard stdio`` was there: one of the first steps."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["has_local_client", "record_local_client"]

_FILE_NAME = "client_seen"


def record_local_client(data_dir: Path) -> None:
    """Remember that a client attached. A data directory that cannot be written stays as it is."""
    with contextlib.suppress(OSError):
        (data_dir / _FILE_NAME).touch(mode=0o600)


def has_local_client(data_dir: Path) -> bool:
    """Return whether a client ever attached."""
    return (data_dir / _FILE_NAME).exists()
