"""Locks between replicas, in PostgreSQL; they end with the connection, and so with who holds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
from psycopg.errors import QueryCanceled

from toolyard.store.errors import DatabaseUnavailable
from toolyard.store.sql.dialects import POSTGRESQL_SESSION_SETUP, Engines
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.postgres_connections import TimedAsyncConnection
from toolyard.store.sql.row_digests import compute_digest

__all__ = ["AdvisoryLocks"]

_MAX_LOCK_CONNECTIONS = 10
"""Connections, beside the pool, that may hold or wait for a lock."""


class AdvisoryLocks:
    """One lock for each key. Each is held by a connection of its own, which is closed whatever happens."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._slots = asyncio.Semaphore(_MAX_LOCK_CONNECTIONS)

    @asynccontextmanager
    async def hold(self, key: str, seconds: float) -> AsyncGenerator[None]:
        """Hold a key, alone among all who use this database.

        Raises DatabaseUnavailable, also where somebody else holds it for longer than ``seconds``.
        """
        async with self._slots:
            connection = await self._acquire_lock(key, seconds)
            try:
                yield
            finally:
                await connection.close()

    async def _acquire_lock(self, key: str, seconds: float) -> TimedAsyncConnection:
        connection: TimedAsyncConnection | None = None
        try:
            limit = self._engines.limits.answer
            connection = await TimedAsyncConnection.open(self._engines.connect_args, limit)
            await connection.execute(POSTGRESQL_SESSION_SETUP)
            await connection.execute("SELECT set_config(%s, %s, false)", _statement_timeout(seconds))
            connection.answer_timeout = limit + seconds
            await connection.execute("SELECT pg_advisory_lock(%s)", (_lock_id(key),))
            return connection
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, QueryCanceled):
                raise DatabaseUnavailable(
                    f"another replica has held the lock for '{key}' for more than {seconds:g} s",
                    hint="end the Toolyard process that hangs, or wait for it",
                ) from None
            if isinstance(error, psycopg.Error):
                raise unavailable_error(self._engines, error) from error
            raise


def _lock_id(key: str) -> int:
    """PostgreSQL names such locks by 64 bits."""
    return int.from_bytes(bytes.fromhex(compute_digest("refresh", key)[:16]), signed=True)


def _statement_timeout(seconds: float) -> tuple[str, str]:
    return "statement_timeout", f"{int(seconds * 1000)}"
