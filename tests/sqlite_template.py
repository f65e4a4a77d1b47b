"""Tables that are there already: making them takes most of the time in which a new SQLite is opened, and in a
process of its own half a second more. That they are made is tested in ``tests/store`` and ``tests/journeys``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from functools import cache
from pathlib import Path


def with_tables(folder: Path) -> Path:
    """Leave a database in this folder, unless it has one: its tables are empty, and no key is its own yet."""
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

    with tempfile.TemporaryDirectory() as made:
        engines, _ = open_database(Path(made), None, "a key for tests, long enough")
        engines.dispose()
        file = Path(made) / DATABASE_FILE_NAME
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            # The word by which a wrong key is known; whoever opens it first leaves their own.
            database.execute("DELETE FROM keys")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.read_bytes()
