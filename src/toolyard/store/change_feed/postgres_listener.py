"""What other replicas say through PostgreSQL, heard on a connection that does nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from toolyard.store.change_feed.signals import CHANNEL
from toolyard.store.sql.dialects import POSTGRESQL_SESSION, Engines
from toolyard.store.sql.executor import unavailable
from toolyard.store.sql.postgres_connections import TimedAsyncConnection

__all__ = ["PostgresEar"]


class PostgresEar:
    """An Ear. Once it listens it does so until it is cancelled or the connection is lost."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def hear(self, said: Callable[[str], None], again: Callable[[], None]) -> None:
        """See Ear."""
        try:
            limits = self._engines.limits
            connection = await TimedAsyncConnection.open(self._engines.connecting, limits.answer)
            try:
                await connection.execute(POSTGRESQL_SESSION)
                await connection.execute(f"LISTEN {CHANNEL}")
                again()
                while True:
                    connection.limit = None
                    async for notification in connection.notifies(timeout=limits.heartbeat):
                        said(notification.payload)
                    # Silence looks the same whether nobody says anything or the server is frozen.
                    connection.limit = limits.answer
                    await connection.execute("SELECT 1")
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise unavailable(self._engines, error) from error
