"""Texts that were too long, for whichever replica is asked next: each principal's own, for some time, within
a size."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, and_, delete, func, select

from toolyard.content.handles import Handles, Kept
from toolyard.content.memory import MemoryHandles
from toolyard.model.principal import Principal
from toolyard.model.server import Trust
from toolyard.store.dialects import insert
from toolyard.store.errors import StoreError
from toolyard.store.tables import results
from toolyard.store.working import Workshop

__all__ = ["SqlResults"]

_log = logging.getLogger(__name__)


class SqlResults:
    """Gives each principal a store of their own.

    A text is kept for ``seconds`` after it was last put in. Where all together take more than ``most`` bytes,
    or those of one principal more than ``share``, the oldest go; the newest always stays. While the database
    cannot be used, memory serves.
    """

    def __init__(
        self,
        workshop: Workshop,
        clock: Callable[[], float],
        *,
        seconds: float = 86_400.0,
        most: int = 256_000_000,
        share: int = 64_000_000,
    ) -> None:
        self._workshop = workshop
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._share = share
        self._spare: dict[str, MemoryHandles] = {}

    def within(self, *, seconds: float, most: int, share: int = 64_000_000) -> SqlResults:
        """The same with other bounds."""
        return SqlResults(self._workshop, self._clock, seconds=seconds, most=most, share=share)

    def of(self, principal: Principal) -> Handles:
        """The store of one principal."""
        return _Own(self, principal.id)

    async def keep(self, principal_id: str, handle: str, kept: Kept) -> None:
        """Put a text in."""

        def work(connection: Connection) -> None:
            now = self._clock()
            connection.execute(delete(results).where(results.c.expires_at <= now))
            _put(connection, principal_id, handle, kept, now + self._seconds)
            mine = and_(results.c.principal == principal_id, results.c.handle == handle)
            _make_room(connection, self._share, mine, results.c.principal == principal_id)
            _make_room(connection, self._most, mine)

        try:
            await self._workshop.write(work)
        except StoreError as error:
            _log.warning("a long result cannot be stored: %s", error.cause)
            await self._spare.setdefault(principal_id, MemoryHandles(self._share // 16)).keep(handle, kept)

    async def read(self, principal_id: str, handle: str) -> Kept | None:
        """What this principal has under the handle."""
        query = select(results.c.trust, results.c.server, results.c.body)
        query = query.where(results.c.principal == principal_id, results.c.handle == handle)
        row = await self._row(query.where(results.c.expires_at > self._clock()))
        if row is not None:
            return Kept(_unpacked(row.body), Trust(row.trust), row.server)
        spare = self._spare.get(principal_id)
        return None if spare is None else await spare.read(handle)

    async def has_any(self, principal_id: str) -> bool:
        """Whether the principal has anything to read."""
        query = select(results.c.handle).where(results.c.principal == principal_id)
        row = await self._row(query.where(results.c.expires_at > self._clock()).limit(1))
        return row is not None or principal_id in self._spare

    async def _row(self, query: Any) -> Any:
        try:
            return await self._workshop.find(lambda connection: connection.execute(query).first(), None)
        except StoreError as error:
            _log.warning("a long result cannot be read: %s", error.cause)
            return None


class _Own:
    """One principal's part."""

    def __init__(self, store: SqlResults, principal_id: str) -> None:
        self._store = store
        self._principal_id = principal_id

    async def keep(self, handle: str, kept: Kept) -> None:
        await self._store.keep(self._principal_id, handle, kept)

    async def read(self, handle: str) -> Kept | None:
        return await self._store.read(self._principal_id, handle)

    async def has_any(self) -> bool:
        return await self._store.has_any(self._principal_id)


def _put(connection: Connection, principal_id: str, handle: str, kept: Kept, expires_at: float) -> None:
    body = zlib.compress(kept.text.encode("utf-8", "surrogatepass"), 1)
    values = {
        "trust": kept.trust.value,
        "server": kept.server,
        "expires_at": expires_at,
        "size": len(body),
        "body": body,
    }
    adding = insert(connection, results).values(principal=principal_id, handle=handle, **values)
    connection.execute(adding.on_conflict_do_update(index_elements=["principal", "handle"], set_=values))


def _unpacked(body: bytes) -> str:
    return zlib.decompress(body).decode("utf-8", "surrogatepass")


def _make_room(connection: Connection, most: int, newest: Any, *whose: Any) -> None:
    """Delete the oldest until the rest fits; never the newest."""
    held = connection.execute(select(func.coalesce(func.sum(results.c.size), 0)).where(*whose)).scalar_one()
    if held <= most:
        return
    query = select(results.c.principal, results.c.handle, results.c.size).where(*whose, ~newest)
    for row in connection.execute(query.order_by(results.c.expires_at, results.c.handle)).all():
        if held <= most:
            return
        same = and_(results.c.principal == row.principal, results.c.handle == row.handle)
        connection.execute(delete(results).where(same))
        held -= row.size
