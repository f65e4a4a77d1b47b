"""Storage of long tool results, so that any replica can return the rest of one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, delete, func, select

from toolyard.results.result_store import (
    PrincipalResultStores,
    ResultRow,
    Retention,
    StoredResult,
    parse_stored_result,
    put_and_evict,
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
            put_and_evict(_DatabaseResultRows(connection), row, self.retention, self.clock())

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


class _DatabaseResultRows:
    """ResultRows within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def delete_expired(self, now: float) -> None:
        self._connection.execute(delete(results).where(results.c.expires_at <= now))

    def put(self, row: ResultRow) -> None:
        values = {**asdict(row), "size": row.size}
        upsert(self._connection, results, values, key=("principal", "handle"))

    def sum_bytes(self, principal: str | None) -> int:
        query = select(func.coalesce(func.sum(results.c.size), 0))
        return int(self._connection.execute(_filter_by_principal(query, principal)).scalar_one())

    def list_oldest_first(self, principal: str | None) -> Sequence[tuple[str, str, int]]:
        query = _filter_by_principal(select(results.c.principal, results.c.handle, results.c.size), principal)
        rows = self._connection.execute(query.order_by(results.c.expires_at, results.c.handle)).all()
        return [(row.principal, row.handle, row.size) for row in rows]

    def delete(self, principal: str, handle: str) -> None:
        self._connection.execute(
            delete(results).where(results.c.principal == principal, results.c.handle == handle)
        )


def _filter_by_principal(query: Select[*tuple[Any, ...]], principal: str | None) -> Select[*tuple[Any, ...]]:
    return query if principal is None else query.where(results.c.principal == principal)
