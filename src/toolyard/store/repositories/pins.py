"""Storage of accepted tool definitions (pins), shared by all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, update

from toolyard.catalog.lock.storage import PinEntry, PinKey
from toolyard.store.change_feed.signals import REGISTRY_CHANNEL, Signals
from toolyard.store.errors import Conflict
from toolyard.store.sql.dialects import insert_if_absent
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.row_digests import compute_digest
from toolyard.store.sql.tables import pins

__all__ = ["SqlPinStorage", "pin_digest"]

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
        rows = await self._executor.read(lambda connection: connection.execute(query).all())
        revisions = {row.digest: row.revision for row in rows}
        return tuple(revisions.get(digest, 0) for digest in digests)

    async def read(self, pin_keys: Sequence[PinKey]) -> tuple[PinEntry, ...]:
        digests = [pin_digest(pin_key) for pin_key in pin_keys]
        query = select(self._table).where(self._table.c.digest.in_(digests))
        rows = await self._executor.read(lambda connection: connection.execute(query).all())
        entries = {row.digest: _entry_from_row(row) for row in rows}
        return tuple(entries.get(digest, PinEntry()) for digest in digests)

    async def list_unaccepted(self, server_id: str) -> Sequence[bytes]:
        table = self._table
        query = select(table.c.seen).where(table.c.server_id == server_id, table.c.seen.is_not(None))
        query = query.distinct().order_by(self._table.c.seen).limit(_MAX_SEEN_LISTINGS)
        rows = await self._executor.read(lambda connection: connection.execute(query).all())
        return [bytes(row.seen) for row in rows]

    async def servers_with_unaccepted_listings(self) -> Sequence[str]:
        """Return the ids of servers that listed tools which are not accepted."""
        query = select(self._table.c.server_id).where(self._table.c.seen.is_not(None)).distinct()
        return await self._executor.read(lambda connection: connection.execute(query).scalars().all())

    async def save(self, pin_key: PinKey, entry: PinEntry, *, notify: bool = False) -> bool:
        values: dict[str, Any] = {"revision": entry.revision + 1, "pins": entry.pins, "seen": entry.seen}
        if "saved_at" in self._table.c:
            values["saved_at"] = entry.saved_at

        def work(connection: Connection) -> bool:
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
            return await self._executor.write(work)
        except Conflict:
            # The server or instance was deleted by a concurrent transaction.
            return False


def pin_digest(pin_key: PinKey) -> str:
    """Return the primary key of a row of pins."""
    return compute_digest(pin_key.server_id, pin_key.instance_id)


def _entry_from_row(row: Any) -> PinEntry:
    seen = None if row.seen is None else bytes(row.seen)
    return PinEntry(row.revision, bytes(row.pins), seen, getattr(row, "saved_at", 0.0))
