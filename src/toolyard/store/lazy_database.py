"""The database for those who may not need it: opened when it is first asked for, and only if there is one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.auth.storage import AuthStorage
    from toolyard.config.settings.table import Settings
    from toolyard.store.database import Database

__all__ = ["DATABASE_FILE_NAME", "LazyDatabase"]

DATABASE_FILE_NAME = "toolyard.db"


class LazyDatabase:
    """Sign-ins and catalogues for the library and the command line. Nothing is created where nothing is."""

    def __init__(self, settings: Settings, data_dir: Path | None) -> None:
        """The database is the one that a server with these settings and this data directory uses."""
        self._settings = settings
        self._data_dir = data_dir
        self._database: Database | None = None
        self._open_lock = asyncio.Lock()

    async def open_auth_storage(self) -> AuthStorage | None:
        """The sign-ins; None where there is no database. Raises StoreError."""
        database = await self.open_if_exists()
        return None if database is None else database.auth

    async def open_if_exists(self) -> Database | None:
        """The database, opened once whoever asks at the same time; None where there is none. Raises
        StoreError."""
        async with self._open_lock:
            if self._database is None:
                if self._data_dir is None:
                    return None
                if self._settings.database_url is None and not (self._data_dir / DATABASE_FILE_NAME).exists():
                    return None
                from toolyard.store import Database  # SQLAlchemy is slow to load

                self._database = await Database.open_from_settings(self._settings, self._data_dir)
            return self._database

    async def close(self) -> None:
        """Close it, if it was opened."""
        database, self._database = self._database, None
        if database is not None:
            await database.close()
