"""What stood in a file before it is written anew, kept beside it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from toolyard.config.atomic import write_private

__all__ = ["keep_backup"]


def keep_backup(target: Path, content: bytes, now: datetime | None = None) -> Path:
    """Write it beside the file, readable by its owner only. Raises OSError where that cannot be done."""
    name = f"{target.name}.bak-{now or datetime.now(UTC):%Y%m%d%H%M%S}"
    backup, number = target.with_name(name), 1
    while os.path.lexists(backup):
        number += 1
        backup = target.with_name(f"{name}-{number}")
    write_private(backup, content)
    return backup
