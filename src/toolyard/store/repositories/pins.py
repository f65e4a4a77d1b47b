"""What was accepted of registry servers and of instances, for every replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, update

from toolyard.catalog.lock.storage import Entry, Place
from toolyard.store.change_feed.signals import SERVERS, Signals
from toolyard.store.errors import Conflict
from toolyard.store.sql.dialects import add
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.row_digests import digest
from toolyard.store.sql.tables import pins

__all__ = ["SqlPins"]

_SEEN = 200
"""Different listings of one server that an admin is shown at once."""


class SqlPins:
    """A PinStorage. What is deleted takes its locks with it.

    ``table`` is ``pins``, or ``config_pins`` for configured servers, which also keeps when pins were stored.
    """

    def __init__(self, workshop: Workshop, signals: Signals, table: Table = pins) -> None:
        self._workshop = workshop
        self._signals = signals
        self._table = table

    async def revisions(self, places: Sequence[Place]) -> tuple[int, ...]:
        """See PinStorage."""
        keys = [_digest(place) for place in places]
        query = select(self._table.c.digest, self._table.c.revision).where(self._table.c.digest.in_(keys))
        rows = await self._workshop.read(lambda connection: connection.execute(query).all())
        found = {row.digest: row.revision for row in rows}
        return tuple(found.get(key, 0) for key in keys)

    async def read(self, places: Sequence[Place]) -> tuple[Entry, ...]:
        """See PinStorage."""
        keys = [_digest(place) for place in places]
        query = select(self._table).where(self._table.c.digest.in_(keys))
        rows = await self._workshop.read(lambda connection: connection.execute(query).all())
        found = {row.digest: _entry(row) for row in rows}
        return tuple(found.get(key, Entry()) for key in keys)

    async def seen(self, server_id: str) -> Sequence[bytes]:
        """See PinStorage."""
        table = self._table
        query = select(table.c.seen).where(table.c.server_id == server_id, table.c.seen.is_not(None))
        query = query.distinct().order_by(self._table.c.seen).limit(_SEEN)
        rows = await self._workshop.read(lambda connection: connection.execute(query).all())
        return [bytes(row.seen) for row in rows]

    async def different(self) -> Sequence[str]:
        """The ids of the servers of which somebody was given what was not accepted at that time."""
        query = select(self._table.c.server_id).where(self._table.c.seen.is_not(None)).distinct()
        return await self._workshop.read(lambda connection: connection.execute(query).scalars().all())

    async def save(self, place: Place, entry: Entry, *, tell: bool = False) -> bool:
        """See PinStorage."""
        values: dict[str, Any] = {"revision": entry.revision + 1, "pins": entry.pins, "seen": entry.seen}
        if "saved_at" in self._table.c:
            values["saved_at"] = entry.saved_at

        def work(connection: Connection) -> bool:
            if entry.revision:
                same = (self._table.c.digest == _digest(place)) & (self._table.c.revision == entry.revision)
                saved = connection.execute(update(self._table).where(same).values(**values)).rowcount > 0
            else:
                whose = {"server_id": place.server_id, "instance_id": place.instance_id or None}
                saved = add(connection, self._table, {"digest": _digest(place), **whose, **values})
            if saved and tell:
                self._signals.tell(connection, SERVERS, place.instance_id or place.server_id)
            return saved

        try:
            return await self._workshop.write(work)
        except Conflict:
            # Its server or instance was deleted meanwhile.
            return False


def _digest(place: Place) -> str:
    return digest(place.server_id, place.instance_id)


def _entry(row: Any) -> Entry:
    seen = None if row.seen is None else bytes(row.seen)
    return Entry(row.revision, bytes(row.pins), seen, getattr(row, "saved_at", 0.0))
