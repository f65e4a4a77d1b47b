"""Template of an SQLite database with empty tables.

Creating the tables takes most of the time of opening a new database. ``tests/store`` and ``tests/journeys``
test their creation.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from functools import cache
from pathlib import Path


def copy_template(folder: Path) -> Path:
    """Copy the template to this folder unless it has a database. The copy has no key yet."""
    from toolyard.store.sql.open import DATABASE_FILE_NAME

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / DATABASE_FILE_NAME
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_empty())
    return folder


@cache
def _empty() -> bytes:
    from toolyard.store.sql.open import DATABASE_FILE_NAME, open_database

    with tempfile.TemporaryDirectory() as temporary_directory:
        engines, _ = open_database(Path(temporary_directory), None, "a key for tests, long enough")
        engines.dispose()
        file = Path(temporary_directory) / DATABASE_FILE_NAME
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            # Remove the check value of the key; the first process that opens the copy stores its own.
            database.execute("DELETE FROM keys")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.read_bytes()
