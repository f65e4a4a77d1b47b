"""Storage of server listings (catalogues), shared by all replicas."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, delete, select, update

from toolyard.catalog.storage import ListingKey, StoredListing
from toolyard.store.errors import StoreError
from toolyard.store.sql.dialects import build_insert
from toolyard.store.sql.executor import DatabaseExecutor, DatabaseWork
from toolyard.store.sql.row_digests import compute_digest
from toolyard.store.sql.tables import catalogues

__all__ = ["SqlCatalogueStorage"]

_MAX_AGE_SECONDS = 90 * 86_400.0
"""Age after which a listing is deleted, since its server is probably gone."""
_MAX_FUTURE_SECONDS = 86_400.0
"""Limit for dates in the future, which come from a wrong clock. Later listings could not replace them."""

_log = logging.getLogger("toolyard.store.catalogues")


class SqlCatalogueStorage:
    """CatalogueStorage in a SQL table. An error is logged, and treated as an empty storage."""

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor

    async def load(self, keys: Sequence[ListingKey], *, newer_than: float = 0.0) -> StoredListing | None:
        by_digest = {compute_digest(*key): key for key in keys}
        query = (
            select(catalogues)
            .where(catalogues.c.digest.in_(list(by_digest)), catalogues.c.fetched_at > newer_than)
            .order_by(catalogues.c.fetched_at.desc())
            .limit(1)
        )
        try:
            row = await self._executor.read(lambda connection: connection.execute(query).one_or_none())
        except StoreError as error:
            _log.warning("a stored catalogue cannot be read: %s", error.cause)
            return None
        if row is None:
            return None
        return StoredListing(
            by_digest[row.digest], row.content_hash, row.fetched_at, row.ttl, bytes(row.body)
        )

    async def save(self, stored: StoredListing) -> None:
        values = {
            "server_id": stored.key.server_id,
            "entry_hash": stored.key.entry_hash,
            "scope": stored.key.scope,
            "content_hash": stored.content_hash,
            "fetched_at": stored.fetched_at,
            "ttl": stored.ttl,
            "body": stored.body,
        }

        def work(connection: Connection) -> None:
            now = stored.fetched_at
            is_plausible = catalogues.c.fetched_at.between(now - _MAX_AGE_SECONDS, now + _MAX_FUTURE_SECONDS)
            connection.execute(delete(catalogues).where(~is_plausible))
            statement = build_insert(connection, catalogues).values(
                digest=compute_digest(*stored.key), **values
            )
            # Replicas fetch the same listing concurrently: an older result must not replace a newer one.
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["digest"],
                    set_=values,
                    where=catalogues.c.fetched_at <= stored.fetched_at,
                )
            )

        await self._write_or_log(work)

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
