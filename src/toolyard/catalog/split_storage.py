"""Listings in two places: what the processes of one data directory have in common, and what people have."""

from __future__ import annotations

from collections.abc import Sequence

from toolyard.catalog.storage import CatalogueStorage, ListingKey, StoredListing
from toolyard.types.principal import LOCAL_PRINCIPAL

__all__ = ["SplitCatalogueStorage"]

_COMMON_SCOPES = frozenset({"public", "shared", f"principal:{LOCAL_PRINCIPAL.id}"})
"""Scopes that the library and the command line read."""


class SplitCatalogueStorage:
    """A ``CatalogueStorage`` for a server beside which library and command line use the same data directory.

    What they can read lies in one place, where they look for it; all else in the other. Nothing lies in both.
    """

    def __init__(self, common: CatalogueStorage, private: CatalogueStorage) -> None:
        self._common = common
        self._private = private

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        found = [
            await place.load(wanted, newer_than=newer_than)
            for place in (self._common, self._private)
            if (wanted := [key for key in keys if self._storage_for(key) is place])
        ]
        return max((one for one in found if one is not None), key=lambda one: one.fetched_at, default=None)

    async def save(self, stored: StoredListing) -> None:
        await self._storage_for(stored.key).save(stored)

    async def expire(self, server_id: str) -> None:
        for place in (self._common, self._private):
            await place.expire(server_id)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        for place in (self._common, self._private):
            await place.forget(server_id, scope)

    def _storage_for(self, key: ListingKey) -> CatalogueStorage:
        # The library and the command line know no instances.
        common = key.scope in _COMMON_SCOPES and not key.server_id.startswith("@")
        return self._common if common else self._private
