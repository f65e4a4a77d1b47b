"""Interface for storing listings beyond the life of the process.

Implementations: in memory, and one that splits listings between a store shared by all processes and a private
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from toolyard.types.account import LOCAL_PRINCIPAL

__all__ = [
    "MAX_FAILURE_AGE_SECONDS",
    "FailureStorage",
    "ListingKey",
    "ListingStorage",
    "MemoryFailureStorage",
    "MemoryListingStorage",
    "SplitListingStorage",
    "StoredFailure",
    "StoredListing",
]

MAX_FAILURE_AGE_SECONDS = 86_400.0
"""Age at which failures are deleted."""


class ListingKey(NamedTuple):
    """Key of a stored listing: the server, a hash of its configuration, and the scope of the credentials."""

    server_id: str
    entry_hash: str
    scope: str


@dataclass(frozen=True, slots=True)
class StoredListing:
    """A stored listing. ``fetched_at`` is in seconds since the epoch, ``ttl`` in seconds.

    ``body`` is the output of ``listing_codec.encode_listing``, ``content_hash`` its SHA-256.
    """

    key: ListingKey
    content_hash: str
    fetched_at: float
    ttl: float
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """A listing that failed after a long wait. ``failed_at`` is in seconds since the epoch."""

    failed_at: float
    cause: str
    hint: str | None


class FailureStorage(Protocol):
    """Storage of failed listings. Implementations log errors and never raise."""

    async def load_failure(self, key: ListingKey) -> StoredFailure | None:
        """Return the last failure under a key."""
        ...

    async def save_failure(self, key: ListingKey, failure: StoredFailure) -> None:
        """Store a failure, and delete those that are older than a day."""
        ...

    async def forget_failures(self, server_id: str) -> None:
        """Delete the failures of a server."""
        ...


class ListingStorage(Protocol):
    """Storage of listings. Losing one costs only a fetch, so implementations log errors and never raise."""

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        """Return the newest listing under ``keys`` that was fetched after ``newer_than``, or None."""
        ...

    async def save(self, stored: StoredListing) -> None:
        """Store a listing under its key, unless a newer one is stored there."""
        ...

    async def expire(self, server_id: str) -> None:
        """Set the ``ttl`` of all listings of a server to zero."""
        ...

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        """Delete the listings of a server: all of them, or those of one scope."""
        ...


class MemoryFailureStorage:
    """A ``FailureStorage`` in memory, for use without a data directory."""

    def __init__(self) -> None:
        self._failures: dict[ListingKey, StoredFailure] = {}

    async def load_failure(self, key: ListingKey) -> StoredFailure | None:
        return self._failures.get(key)

    async def save_failure(self, key: ListingKey, failure: StoredFailure) -> None:
        oldest = failure.failed_at - MAX_FAILURE_AGE_SECONDS
        self._failures = {each: one for each, one in self._failures.items() if one.failed_at > oldest}
        self._failures[key] = failure

    async def forget_failures(self, server_id: str) -> None:
        self._failures = {key: one for key, one in self._failures.items() if key.server_id != server_id}


class MemoryListingStorage:
    """A ``ListingStorage`` in memory, for tests and for use without a data directory."""

    def __init__(self) -> None:
        self.listings: dict[ListingKey, StoredListing] = {}

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        candidates = [self.listings[key] for key in keys if key in self.listings]
        newest = max(candidates, key=lambda stored: stored.fetched_at, default=None)
        return newest if newest is not None and newest.fetched_at > newer_than else None

    async def save(self, stored: StoredListing) -> None:
        current = self.listings.get(stored.key)
        if current is None or current.fetched_at <= stored.fetched_at:
            self.listings[stored.key] = stored

    async def expire(self, server_id: str) -> None:
        for key, stored in self.listings.items():
            if key.server_id == server_id:
                self.listings[key] = replace(stored, ttl=0.0)

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        keys = [key for key in self.listings if key.server_id == server_id and scope in (None, key.scope)]
        for key in keys:
            del self.listings[key]


_COMMON_SCOPES = frozenset({"public", "shared", f"principal:{LOCAL_PRINCIPAL.id}"})
"""Scopes used by the library and the command line."""


class SplitListingStorage:
    """A ``ListingStorage`` for a Toolyard server whose data directory the library and command line share.

    Listings that those can use are stored in ``common``, all others in ``private``. No listing is in both.
    """

    def __init__(self, common: ListingStorage, private: ListingStorage) -> None:
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

    def _storage_for(self, key: ListingKey) -> ListingStorage:
        # Ids of instances start with "@"; the library and the command line have no instances.
        common = key.scope in _COMMON_SCOPES and not key.server_id.startswith("@")
        return self._common if common else self._private
