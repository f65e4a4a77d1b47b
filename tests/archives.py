"""Archives in tests."""

from __future__ import annotations

import io
import zipfile


def join_files(archive: bytes) -> bytes:
    """Return the contents of all files of an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        return b"\n".join(files.read(name) for name in files.namelist())
