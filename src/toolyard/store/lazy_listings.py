"""The catalogues of a PostgreSQL database, for a process that opens it when it first looks for one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import PinEntry, PinEntryStorage, PinKey
from toolyard.catalog.storage import CatalogueStorage, ListingKey, StoredListing
from toolyard.config.settings.table import Settings
from toolyard.store.errors import StoreError
from toolyard.store.lazy_database import LazyDatabase

__all__ = ["LazyCatalogueStorage", "LazyPinEntryStorage", "select_catalogue_storage"]

_log = logging.getLogger("toolyard.store.lazy_catalogues")


class LazyCatalogueStorage:
    """A CatalogueStorage. Where the database cannot be opened, ``instead`` serves until the process ends: to
    try again for each server would take its time each time."""

    def __init__(self, database: LazyDatabase, fallback: CatalogueStorage) -> None:
        self._database = database
        self._fallback = fallback
        self._has_failed = False

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        """See CatalogueStorage."""
        return await (await self._choose_storage()).load(keys, newer_than=newer_than)

    async def save(self, stored: StoredListing) -> None:
        """See CatalogueStorage."""
        await (await self._choose_storage()).save(stored)

    async def expire(self, server_id: str) -> None:
        """See CatalogueStorage."""
        await (await self._choose_storage()).expire(server_id)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        """See CatalogueStorage."""
        await (await self._choose_storage()).forget(server_id, scope)

    async def _choose_storage(self) -> CatalogueStorage:
        if self._has_failed:
            return self._fallback
        try:
            database = await self._database.open_if_exists()
        except StoreError as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning("stored catalogues are not read from the database: %s", error.cause)
            return self._fallback
        return self._fallback if database is None else database.catalogues


class LazyPinEntryStorage:
    """An EntryStorage in the PostgreSQL database. Raises StoreError: pins of another storage would let
    changed tools through while the database is down."""

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
            raise PinsUnavailable("there is no database", hint="set database_url and a data directory")
        return database.config_pins


def select_catalogue_storage(
    settings: Settings, file_storage: CatalogueStorage, database: LazyDatabase
) -> CatalogueStorage:
    """Where library and command line find the listings of a server that has the same settings."""
    return file_storage if settings.database_url is None else LazyCatalogueStorage(database, file_storage)
