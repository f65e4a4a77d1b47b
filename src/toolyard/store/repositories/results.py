"""Storage of long tool results, so that any replica can return the rest of one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, delete, func, select, true, tuple_

from toolyard.results.result_store import (
    PrincipalResultStores,
    ResultRow,
    Retention,
    StoredResult,
    parse_stored_result,
)
from toolyard.store.errors import StoreError
from toolyard.store.sql.dialects import upsert
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import results

__all__ = ["DatabaseResultStore"]

_T = TypeVar("_T")
_log = logging.getLogger("toolyard.store.results")


class DatabaseResultStore(PrincipalResultStores):
    """Stores results in the database, within the limits of ``Retention``. Falls back to memory on errors."""

    def __init__(
        self,
        executor: DatabaseExecutor,
        clock: Callable[[], float],
        retention: Retention = Retention(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(retention, clock)
        self._executor = executor

    def with_retention(self, retention: Retention) -> DatabaseResultStore:
        """Return a store of the same database with other limits."""
        return DatabaseResultStore(self._executor, self.clock, retention)

    async def put(self, row: ResultRow) -> bool:
        def insert_result(connection: Connection) -> None:
            connection.execute(delete(results).where(results.c.expires_at <= self.clock()))
            upsert(connection, results, {**asdict(row), "size": row.size}, key=("principal", "handle"))
            # The principal's limit first: one who stores much should lose own results before those of others.
            own = results.c.principal == row.principal
            _delete_oldest(connection, own, self.retention.max_principal_bytes, row)
            _delete_oldest(connection, true(), self.retention.max_total_bytes, row)

        try:
            await self._executor.write(insert_result)
        except StoreError as error:
            _log.warning("a long result cannot be stored: %s", error.cause)
            return False
        return True

    async def find(self, principal: str, handle: str) -> StoredResult | None:
        query = select(results.c.trust, results.c.server, results.c.body)
        return await self._find_first(query.where(results.c.handle == handle), principal, parse_stored_result)

    async def has_stored(self, principal: str) -> bool:
        return await self._find_first(select(results.c.handle).limit(1), principal, bool) is True

    async def _find_first(
        self, query: Select[*tuple[Any, ...]], principal: str, convert: Callable[..., _T]
    ) -> _T | None:
        """Convert the first row that belongs to the principal and has not expired; None if there is none."""
        query = query.where(results.c.principal == principal, results.c.expires_at > self.clock())

        def read_first(connection: Connection) -> _T | None:
            row = connection.execute(query).first()
            return None if row is None else convert(*row)

        try:
            return await self._executor.read_or_default(read_first, None)
        except (StoreError, ValueError) as error:
            _log.warning("a long result cannot be read: %s", error)
            return None


def _delete_oldest(
    connection: Connection, condition: ColumnElement[bool], max_bytes: int, newest: ResultRow
) -> None:
    """Delete the oldest matching rows until the rest is within a limit, but never the newest."""
    key = tuple_(results.c.principal, results.c.handle)
    is_newest = key == (newest.principal, newest.handle)
    # First by ``is_newest``: another process may have stored results with a clock that is ahead.
    newest_first = (
        is_newest.desc(),
        results.c.expires_at.desc(),
        results.c.handle.desc(),
        results.c.principal,
    )
    total = func.sum(results.c.size).over(order_by=newest_first).label("total")
    totals = select(results.c.principal, results.c.handle, total).where(condition).subquery()
    excess = select(totals.c.principal, totals.c.handle).where(totals.c.total > max_bytes)
    connection.execute(delete(results).where(key.in_(excess), ~is_newest))
