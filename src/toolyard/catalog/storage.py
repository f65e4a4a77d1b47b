"""Where listings outlive the process: the seam, and an implementation in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

__all__ = ["CatalogueStorage", "ListingKey", "MemoryCatalogueStorage", "StoredListing"]


class ListingKey(NamedTuple):
    """What a stored listing is for: a server, the entry it was fetched with, and whose credentials."""

    server_id: str
    entry_hash: str
    scope: str


@dataclass(frozen=True, slots=True)
class StoredListing:
    """A listing as it lies in storage. ``fetched_at`` is in seconds since the epoch, ``ttl`` in seconds.

    ``body`` is what ``codec.encode`` wrote and ``content_hash`` its SHA-256.
    """

    key: ListingKey
    content_hash: str
    fetched_at: float
    ttl: float
    body: bytes


class CatalogueStorage(Protocol):
    """Keeps listings. Losing one costs a fetch, so an implementation logs its faults and never raises."""

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        """The newest listing among ``keys``, if it was fetched after ``newer_than``."""
        ...

    async def save(self, stored: StoredListing) -> None:
        """Keep a listing under its key, unless a newer one lies there."""
        ...

    async def expire(self, server_id: str) -> None:
        """Set the ``ttl`` of all listings of a server to zero."""
        ...

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        """Drop the listings of a server: all, or those of one scope."""
        ...


class MemoryCatalogueStorage:
    """A storage that ends with the process."""

    def __init__(self) -> None:
        self._listings: dict[ListingKey, StoredListing] = {}

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        found = [self._listings[key] for key in keys if key in self._listings]
        newest = max(found, key=lambda stored: stored.fetched_at, default=None)
        return newest if newest is not None and newest.fetched_at > newer_than else None

    async def save(self, stored: StoredListing) -> None:
        there = self._listings.get(stored.key)
        if there is None or there.fetched_at <= stored.fetched_at:
            self._listings[stored.key] = stored

    async def expire(self, server_id: str) -> None:
        for key, stored in self._listings.items():
            if key.server_id == server_id:
                self._listings[key] = replace(stored, ttl=0.0)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        gone = [key for key in self._listings if key.server_id == server_id and scope in (None, key.scope)]
        for key in gone:
            del self._listings[key]
