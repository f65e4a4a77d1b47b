"""What stood in a file before it is written anew, kept beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from toolyard.config.file_writer import create_private_file

__all__ = ["write_backup"]


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
