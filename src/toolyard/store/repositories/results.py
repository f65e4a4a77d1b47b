"""Results that were too long, for whichever replica is asked next."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, func, select

from toolyard.results.result_store import Kept
from toolyard.results.retention import Bounds, Results, Row, kept_of, put_within
from toolyard.store.errors import StoreError
from toolyard.store.sql.dialects import insert
from toolyard.store.sql.executor import Workshop
from toolyard.store.sql.tables import results

__all__ = ["SqlResults"]

_T = TypeVar("_T")
_log = logging.getLogger("toolyard.store.results")


class SqlResults(Results):
    """Keeps them in the database, within the Bounds. While it cannot be used, memory serves."""

    def __init__(
        self,
        workshop: Workshop,
        clock: Callable[[], float],
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(bounds, clock)
        self._workshop = workshop

    def within(self, bounds: Bounds) -> SqlResults:
        """The same with other bounds."""
        return SqlResults(self._workshop, self.clock, bounds)

    async def put(self, row: Row) -> bool:
        """See Results."""

        def work(connection: Connection) -> None:
            put_within(_Rows(connection), row, self.bounds, self.clock())

        try:
            await self._workshop.write(work)
        except StoreError as error:
            _log.warning("a long result cannot be stored: %s", error.cause)
            return False
        return True

    async def find(self, principal: str, handle: str) -> Kept | None:
        """See Results."""
        query = select(results.c.trust, results.c.server, results.c.body)
        return await self._found(query.where(results.c.handle == handle), principal, kept_of)

    async def has_stored(self, principal: str) -> bool:
        """See Results."""
        return await self._found(select(results.c.handle).limit(1), principal, bool) is True

    async def _found(
        self, query: Select[*tuple[Any, ...]], principal: str, read: Callable[..., _T]
    ) -> _T | None:
        """What is read of the first row that is this principal's and not over."""
        query = query.where(results.c.principal == principal, results.c.expires_at > self.clock())

        def work(connection: Connection) -> _T | None:
            row = connection.execute(query).first()
            return None if row is None else read(*row)

        try:
            return await self._workshop.find(work, None)
        except (StoreError, ValueError, zlib.error) as error:
            _log.warning("a long result cannot be read: %s", error)
            return None


class _Rows:
    """A Ledger."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def expire(self, now: float) -> None:
        self._connection.execute(delete(results).where(results.c.expires_at <= now))

    def put(self, row: Row) -> None:
        values = {**asdict(row), "size": row.size}
        adding = insert(self._connection, results).values(values)
        same = ["principal", "handle"]
        changed = {key: value for key, value in values.items() if key not in same}
        self._connection.execute(adding.on_conflict_do_update(index_elements=same, set_=changed))

    def held(self, principal: str | None) -> int:
        query = select(func.coalesce(func.sum(results.c.size), 0))
        return int(self._connection.execute(_whose(query, principal)).scalar_one())

    def oldest_first(self, principal: str | None) -> Sequence[tuple[str, str, int]]:
        query = _whose(select(results.c.principal, results.c.handle, results.c.size), principal)
        rows = self._connection.execute(query.order_by(results.c.expires_at, results.c.handle)).all()
        return [(row.principal, row.handle, row.size) for row in rows]

    def drop(self, principal: str, handle: str) -> None:
        same = (results.c.principal == principal, results.c.handle == handle)
        self._connection.execute(delete(results).where(*same))


def _whose(query: Select[*tuple[Any, ...]], principal: str | None) -> Select[*tuple[Any, ...]]:
    return query if principal is None else query.where(results.c.principal == principal)
