"""Database that is opened on first use, and only if it exists; and storages of listings and pins in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolyard.catalog.listing_storage import ListingKey, ListingStorage, StoredListing
from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinEntryStorage, PinKey
from toolyard.config.settings.table import Settings
from toolyard.store.errors import StoreError
from toolyard.store.sql.key_file import DATABASE_FILE_NAME

if TYPE_CHECKING:
    from toolyard.auth.storage import AuthStorage
    from toolyard.store.database import Database

__all__ = ["LazyDatabase", "LazyListingStorage", "LazyPinEntryStorage", "select_catalogue_storage"]


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


_log = logging.getLogger("toolyard.store.lazy_catalogues")


class LazyListingStorage:
    """ListingStorage in a lazily opened database.

    If the database cannot be opened, ``fallback`` is used until the process ends. Trying again for each
    server would cost the connection timeout every time.
    """

    def __init__(self, database: LazyDatabase, fallback: ListingStorage) -> None:
        self._database = database
        self._fallback = fallback
        self._has_failed = False

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        return await (await self._choose_storage()).load(keys, newer_than=newer_than)

    async def save(self, stored: StoredListing) -> None:
        await (await self._choose_storage()).save(stored)

    async def expire(self, server_id: str) -> None:
        await (await self._choose_storage()).expire(server_id)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        await (await self._choose_storage()).forget(server_id, scope)

    async def _choose_storage(self) -> ListingStorage:
        if self._has_failed:
            return self._fallback
        try:
            database = await self._database.open_if_exists()
        except StoreError as error:
            # Several callers may have waited for the same attempt; it is reported once.
            if not self._has_failed:
                self._has_failed = True
                _log.warning("cannot open the database; using catalogues in files instead: %s", error.cause)
            return self._fallback
        return self._fallback if database is None else database.catalogues


class LazyPinEntryStorage:
    """PinEntryStorage in a lazily opened database. Methods raise StoreError while it is unavailable.

    It has no fallback: pins of another storage could accept changed tools while the database is down.
    """

    def __init__(self, database: LazyDatabase) -> None:
        self._database = database

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        return await (await self._open_pin_storage()).revisions(pin_keys)

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        return await (await self._open_pin_storage()).read(pin_keys)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        return await (await self._open_pin_storage()).save(pin_key, entry, notify=notify)

    async def _open_pin_storage(self) -> PinEntryStorage:
        database = await self._database.open_if_exists()
        if database is None:
            raise PinsUnavailable("no database is configured", hint="set database_url and a data directory")
        return database.config_pins


def select_catalogue_storage(
    settings: Settings, file_storage: ListingStorage, database: LazyDatabase
) -> ListingStorage:
    """Return the storage of listings that a server with the same settings uses."""
    return file_storage if settings.database_url is None else LazyListingStorage(database, file_storage)
