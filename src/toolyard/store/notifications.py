"""What other replicas say through PostgreSQL, heard on a connection that does nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from toolyard.store.dialects import POSTGRESQL_SESSION, Engines
from toolyard.store.signals import CHANNEL
from toolyard.store.working import unavailable

__all__ = ["PostgresEar"]


class PostgresEar:
    """An Ear. Once it listens it does so until it is cancelled or the connection is lost."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def hear(self, said: Callable[[str], None], again: Callable[[], None]) -> None:
        """See Ear."""
        try:
            connection = await psycopg.AsyncConnection.connect(autocommit=True, **self._engines.connecting)
            try:
                await connection.execute(POSTGRESQL_SESSION)
                await connection.execute(f"LISTEN {CHANNEL}")
                again()
                async for notification in connection.notifies():
                    said(notification.payload)
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise unavailable(self._engines, error) from error
