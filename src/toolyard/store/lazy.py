"""The database for those who may not need it: opened when it is first asked for, and only if there is one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolyard.auth.storage import AuthStorage
    from toolyard.store.database import Database

__all__ = ["FILE_NAME", "LazyDatabase"]

FILE_NAME = "toolyard.db"


class LazyDatabase:
    """Sign-ins for the library and the command line. Nothing is created where nothing is."""

    def __init__(
        self, data_dir: Path | None, *, url: str | None, secret_key: str | None, former_key: str | None = None
    ) -> None:
        self._data_dir = data_dir
        self._url = url
        self._secret_key = secret_key
        self._former_key = former_key
        self._database: Database | None = None

    async def auth(self) -> AuthStorage | None:
        """The sign-ins; None where there is no database. Raises StoreError."""
        if self._database is None:
            if self._data_dir is None or (self._url is None and not (self._data_dir / FILE_NAME).exists()):
                return None
            from toolyard.store import Database  # SQLAlchemy is slow to load

            self._database = await Database.open(
                self._data_dir, url=self._url, secret_key=self._secret_key, former_key=self._former_key
            )
        return self._database.auth

    async def close(self) -> None:
        """Close it, if it was opened."""
        database, self._database = self._database, None
        if database is not None:
            await database.close()
