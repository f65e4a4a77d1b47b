"""Database that is opened on first use, and only if it exists."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.store.sql.key_file import DATABASE_FILE_NAME

if TYPE_CHECKING:
    from toolyard.auth.storage import AuthStorage
    from toolyard.config.settings.table import Settings
    from toolyard.store.database import Database

__all__ = ["LazyDatabase"]


class LazyDatabase:
    """Database for processes that often need none. It is created only where that is asked for."""

    def __init__(self, settings: Settings, data_dir: Path | None) -> None:
        """Use the database of a server with these settings and this data directory."""
        self._settings = settings
        self._data_dir = data_dir
        self._database: Database | None = None
        self._open_lock = asyncio.Lock()

    async def open_auth_storage(self) -> AuthStorage | None:
        """Return the storage of sign-ins; None without a database. Raises StoreError."""
        database = await self.open_if_exists()
        return None if database is None else database.auth

    async def open_if_exists(self, *, create: bool = False) -> Database | None:
        """Return the database; None if there is none, and ``create`` is false. Concurrent callers share one.

        Raises StoreError.
        """
        async with self._open_lock:
            if self._database is None:
                # Opening SQLite would create the file, so look for it first.
                if self._data_dir is None:
                    return None
                is_there = self._settings.database_url or (self._data_dir / DATABASE_FILE_NAME).exists()
                if not is_there and not create:
                    return None
                from toolyard.store import Database  # loads SQLAlchemy, which is slow

                self._database = await Database.open_from_settings(self._settings, self._data_dir)
            return self._database

    async def close(self) -> None:
        """Close the database, if it was opened."""
        database, self._database = self._database, None
        if database is not None:
            await database.close()
