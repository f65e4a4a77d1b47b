"""Storage that splits listings between a store shared by all processes and a private one."""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.catalog.storage import CatalogueStorage, ListingKey, StoredListing
from toolyard.types.principal import LOCAL_PRINCIPAL

__all__ = ["SplitCatalogueStorage"]

_COMMON_SCOPES = frozenset({"public", "shared", f"principal:{LOCAL_PRINCIPAL.id}"})
"""Scopes used by the library and the command line."""


class SplitCatalogueStorage:
    """A ``CatalogueStorage`` for a Toolyard server whose data directory the library and command line share.

    Listings that those can use are stored in ``common``, all others in ``private``. No listing is in both.
    """

    def __init__(self, common: CatalogueStorage, private: CatalogueStorage) -> None:
        self._common = common
        self._private = private

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        candidates = [
            await storage.load(own_keys, newer_than=newer_than)
            for storage in (self._common, self._private)
            if (own_keys := [key for key in keys if self._storage_for(key) is storage])
        ]
        return max(
            (stored for stored in candidates if stored is not None),
            key=lambda stored: stored.fetched_at,
            default=None,
        )

    async def save(self, stored: StoredListing) -> None:
        await self._storage_for(stored.key).save(stored)

    async def expire(self, server_id: str) -> None:
        for storage in (self._common, self._private):
            await storage.expire(server_id)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        for storage in (self._common, self._private):
            await storage.forget(server_id, scope)

    def _storage_for(self, key: ListingKey) -> CatalogueStorage:
        # Ids of instances start with "@"; the library and the command line have no instances.
        common = key.scope in _COMMON_SCOPES and not key.server_id.startswith("@")
        return self._common if common else self._private
