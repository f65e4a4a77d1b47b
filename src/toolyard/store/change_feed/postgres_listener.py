"""What other replicas say through PostgreSQL, heard on a connection that does nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from toolyard.store.change_feed.signals import POSTGRESQL_CHANNEL
from toolyard.store.sql.dialects import POSTGRESQL_SESSION_SETUP, Engines
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.postgres_connections import TimedAsyncConnection

__all__ = ["PostgresChangeListener"]


class PostgresChangeListener:
    """An Ear. Once it listens it does so until it is cancelled or the connection is lost."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def run(self, on_message: Callable[[str], None], on_resync: Callable[[], None]) -> None:
        """See Ear."""
        try:
            limits = self._engines.limits
            connection = await TimedAsyncConnection.open(self._engines.connect_args, limits.answer)
            try:
                await connection.execute(POSTGRESQL_SESSION_SETUP)
                await connection.execute(f"LISTEN {POSTGRESQL_CHANNEL}")
                on_resync()
                while True:
                    connection.answer_timeout = None
                    async for notification in connection.notifies(timeout=limits.heartbeat):
                        on_message(notification.payload)
                    # Silence looks the same whether nobody says anything or the server is frozen.
                    connection.answer_timeout = limits.answer
                    await connection.execute("SELECT 1")
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise unavailable_error(self._engines, error) from error
