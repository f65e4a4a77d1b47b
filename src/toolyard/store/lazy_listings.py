"""The catalogues of a PostgreSQL database, for a process that opens it when it first looks for one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from toolyard.catalog.lock.errors import PinsUnavailable
from toolyard.catalog.lock.storage import Entry, EntryStorage, Place
from toolyard.catalog.storage import CatalogueStorage, Key, Stored
from toolyard.config.settings.table import Settings
from toolyard.store.errors import StoreError
from toolyard.store.lazy_database import LazyDatabase

__all__ = ["LazyCatalogues", "LazyEntries", "common_storage"]

_log = logging.getLogger("toolyard.store.lazy_catalogues")


class LazyCatalogues:
    """A CatalogueStorage. Where the database cannot be opened, ``instead`` serves until the process ends: to
    try again for each server would take its time each time."""

    def __init__(self, database: LazyDatabase, instead: CatalogueStorage) -> None:
        self._database = database
        self._instead = instead
        self._failed = False

    async def load(self, keys: Sequence[Key], *, newer_than: float = 0.0) -> Stored | None:
        """See CatalogueStorage."""
        return await (await self._place()).load(keys, newer_than=newer_than)

    async def save(self, stored: Stored) -> None:
        """See CatalogueStorage."""
        await (await self._place()).save(stored)

    async def expire(self, server_id: str) -> None:
        """See CatalogueStorage."""
        await (await self._place()).expire(server_id)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        """See CatalogueStorage."""
        await (await self._place()).forget(server_id, scope)

    async def _place(self) -> CatalogueStorage:
        if self._failed:
            return self._instead
        try:
            database = await self._database.opened()
        except StoreError as error:
            if not self._failed:
                self._failed = True
                _log.warning("stored catalogues are not read from the database: %s", error.cause)
            return self._instead
        return self._instead if database is None else database.catalogues


class LazyEntries:
    """An EntryStorage in the PostgreSQL database. Raises StoreError: pins of another storage would let
    changed tools through while the database is down."""

    def __init__(self, database: LazyDatabase) -> None:
        self._database = database

    async def revisions(self, places: Sequence[Place]) -> tuple[int, ...]:
        return await (await self._opened()).revisions(places)

    async def read(self, places: Sequence[Place]) -> tuple[Entry, ...]:
        return await (await self._opened()).read(places)

    async def save(self, place: Place, entry: Entry, *, tell: bool = False) -> bool:
        return await (await self._opened()).save(place, entry, tell=tell)

    async def _opened(self) -> EntryStorage:
        database = await self._database.opened()
        if database is None:
            raise PinsUnavailable("there is no database", hint="set database_url and a data directory")
        return database.config_pins


def common_storage(settings: Settings, file: CatalogueStorage, database: LazyDatabase) -> CatalogueStorage:
    """Where library and command line find the listings of a server that has the same settings."""
    return file if settings.database_url is None else LazyCatalogues(database, file)
