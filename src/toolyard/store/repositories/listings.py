"""Storage of server listings (catalogues) and accepted tool definitions (pins), shared by all replicas."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, select, update

from toolyard.catalog.listing_storage import ListingKey, StoredListing
from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL, Signals
from toolyard.store.errors import Conflict, StoreError
from toolyard.store.sql.dialects import insert_if_absent, upsert
from toolyard.store.sql.executor import DatabaseExecutor, DatabaseWork, Repository
from toolyard.store.sql.stored_values import compute_digest
from toolyard.store.sql.tables import catalogues, pins

__all__ = ["SqlListingStorage", "SqlPinStorage", "pin_digest"]


_MAX_AGE_SECONDS = 90 * 86_400.0
"""Age after which a listing is deleted, since its server is probably gone."""
_MAX_FUTURE_SECONDS = 86_400.0
"""Limit for dates in the future, which come from a wrong clock. Later listings could not replace them."""

_log = logging.getLogger("toolyard.store.catalogues")


class SqlListingStorage(Repository):
    """ListingStorage in a SQL table. An error is logged, and treated as an empty storage."""

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        by_digest = {compute_digest(*key): key for key in keys}
        query = (
            select(catalogues)
            .where(catalogues.c.digest.in_(list(by_digest)), catalogues.c.fetched_at > newer_than)
            .order_by(catalogues.c.fetched_at.desc())
            .limit(1)
        )
        try:
            return await self._executor.fetch_one(
                query,
                lambda row: StoredListing(
                    by_digest[row.digest], row.content_hash, row.fetched_at, row.ttl, bytes(row.body)
                ),
            )
        except StoreError as error:
            _log.warning("a stored catalogue cannot be read: %s", error.cause)
            return None

    async def save(self, stored: StoredListing) -> None:
        values = {
            "digest": compute_digest(*stored.key),
            "server_id": stored.key.server_id,
            "entry_hash": stored.key.entry_hash,
            "scope": stored.key.scope,
            "content_hash": stored.content_hash,
            "fetched_at": stored.fetched_at,
            "ttl": stored.ttl,
            "body": stored.body,
        }

        def upsert_listing(connection: Connection) -> None:
            now = stored.fetched_at
            is_plausible = catalogues.c.fetched_at.between(now - _MAX_AGE_SECONDS, now + _MAX_FUTURE_SECONDS)
            connection.execute(delete(catalogues).where(~is_plausible))
            # Replicas fetch the same listing concurrently: an older result must not replace a newer one.
            upsert(connection, catalogues, values, where=catalogues.c.fetched_at <= stored.fetched_at)

        await self._write_or_log(upsert_listing)

    async def expire(self, server_id: str) -> None:
        statement = update(catalogues).where(catalogues.c.server_id == server_id).values(ttl=0.0)
        await self._write_or_log(lambda connection: connection.execute(statement))

    async def forget(self, server_id: str, scope: str | None = None) -> None:
        statement = delete(catalogues).where(catalogues.c.server_id == server_id)
        if scope is not None:
            statement = statement.where(catalogues.c.scope == scope)
        await self._write_or_log(lambda connection: connection.execute(statement))

    async def _write_or_log(self, work: DatabaseWork[object]) -> None:
        try:
            await self._executor.write(work)
        except StoreError as error:
            _log.warning("a catalogue cannot be stored: %s", error.cause)


_MAX_SEEN_LISTINGS = 200
"""Maximum number of different listings of one server that an admin sees at once."""


class SqlPinStorage:
    """RegistryPinStorage in SQL tables. Pins are deleted together with their server or instance.

    ``table`` is ``pins``, or ``config_pins`` for servers in configuration files, which also stores the time.
    """

    def __init__(self, executor: DatabaseExecutor, signals: Signals, table: Table = pins) -> None:
        self._executor = executor
        self._signals = signals
        self._table = table

    async def revisions(self, pin_keys: Sequence[PinKey]) -> tuple[int, ...]:
        digests = [pin_digest(pin_key) for pin_key in pin_keys]
        query = select(self._table.c.digest, self._table.c.revision).where(self._table.c.digest.in_(digests))
        revisions = {row.digest: row.revision for row in await self._executor.fetch_rows(query)}
        return tuple(revisions.get(digest, 0) for digest in digests)

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        digests = [pin_digest(pin_key) for pin_key in pin_keys]
        query = select(self._table).where(self._table.c.digest.in_(digests))
        entries = {row.digest: _entry_from_row(row) for row in await self._executor.fetch_rows(query)}
        return tuple(entries.get(digest, PinEntry()) for digest in digests)

    async def list_unaccepted(self, server_id: str) -> Sequence[bytes]:
        table = self._table
        query = select(table.c.seen).where(table.c.server_id == server_id, table.c.seen.is_not(None))
        query = query.distinct().order_by(self._table.c.seen).limit(_MAX_SEEN_LISTINGS)
        return await self._executor.fetch_all(query, lambda row: bytes(row.seen))

    async def servers_with_unaccepted_listings(self) -> Sequence[str]:
        """Return the ids of servers that listed tools which are not accepted."""
        query = select(self._table.c.server_id).where(self._table.c.seen.is_not(None)).distinct()
        return await self._executor.fetch_all(query, lambda row: row.server_id)

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        values: dict[str, Any] = {"revision": entry.revision + 1, "pins": entry.pins, "seen": entry.seen}
        if "saved_at" in self._table.c:
            values["saved_at"] = entry.saved_at

        def upsert_pin(connection: Connection) -> bool:
            # Optimistic locking: the row must still have the revision that the caller read.
            if entry.revision:
                is_same_revision = (self._table.c.digest == pin_digest(pin_key)) & (
                    self._table.c.revision == entry.revision
                )
                saved = (
                    connection.execute(update(self._table).where(is_same_revision).values(**values)).rowcount
                    > 0
                )
            else:
                references = {"server_id": pin_key.server_id, "instance_id": pin_key.instance_id or None}
                saved = insert_if_absent(
                    connection, self._table, {"digest": pin_digest(pin_key), **references, **values}
                )
            if saved and notify:
                self._signals.notify(connection, REGISTRY_CHANNEL, pin_key.instance_id or pin_key.server_id)
            return saved

        try:
            return await self._executor.write(upsert_pin)
        except Conflict:
            # The server or instance was deleted by a concurrent transaction.
            return False


def pin_digest(pin_key: PinKey) -> str:
    """Return the primary key of a row of pins."""
    return compute_digest(pin_key.server_id, pin_key.instance_id)


def _entry_from_row(row: Any) -> PinEntry:
    seen = None if row.seen is None else bytes(row.seen)
    return PinEntry(row.revision, bytes(row.pins), seen, getattr(row, "saved_at", 0.0))
