"""Notifications of other replicas through PostgreSQL's LISTEN, on a separate connection.

The connection is asynchronous and outside the pool: a worker thread that waits for hours would be missing for
other work.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from toolyard.store.change_feed.signals import POSTGRESQL_CHANNEL
from toolyard.store.sql.dialects import POSTGRESQL_SESSION_SETUP, Engines
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.postgres_connections import TimedAsyncConnection

__all__ = ["PostgresChangeListener"]


class PostgresChangeListener:
    """ChangeListener for PostgreSQL. Runs until it is cancelled or the connection is lost."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def run(self, on_message: Callable[[str], None], on_resync: Callable[[], None]) -> None:
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
                    # No notification for a while may mean a frozen server, so check that it answers.
                    connection.answer_timeout = limits.answer
                    await connection.execute("SELECT 1")
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise unavailable_error(self._engines, error) from error
