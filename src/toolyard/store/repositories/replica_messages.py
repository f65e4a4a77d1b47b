"""Letters from one process to another that uses the same database: sealed, in order, taken out once."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from toolyard.store.change_feed.signals import MAILBOX_CHANNEL, Signals
from toolyard.store.errors import Unreadable
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.executor import DatabaseExecutor
from toolyard.store.sql.tables import letters

__all__ = ["SqlMailbox"]

_MAX_AGE_SECONDS = 900.0
"""Seconds after which a letter is thrown away that nobody took: whoever it was for is gone."""

_log = logging.getLogger("toolyard.store.letters")


class SqlMailbox:
    """Boxes are named by whoever reads them; a name that nobody could guess is one that nobody else reads."""

    def __init__(
        self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals, clock: Callable[[], float]
    ) -> None:
        self._executor = executor
        self._cipher = cipher
        self._signals = signals
        self._clock = clock

    async def post(self, box: str, message: bytes) -> None:
        """Put a letter into a box. Raises StoreError."""
        body, now = self._cipher.encrypt(message, _associated_data(box)), self._clock()

        def work(connection: Connection) -> None:
            connection.execute(delete(letters).where(letters.c.sent_at < now - _MAX_AGE_SECONDS))
            connection.execute(letters.insert().values(box=box, sent_at=now, body=body))
            self._signals.notify(connection, MAILBOX_CHANNEL, box)

        await self._executor.write(work)

    async def take(self, box: str) -> Sequence[bytes]:
        """Take out what is in a box, the oldest first. Raises StoreError."""
        mine = letters.c.box == box
        any_there = select(letters.c.id).where(mine).limit(1)
        # Who looks in vain keeps nobody from writing.
        if await self._executor.read(lambda connection: connection.execute(any_there).first()) is None:
            return ()
        taking = delete(letters).where(mine).returning(letters.c.id, letters.c.body)
        rows: Sequence[Any] = await self._executor.write(lambda c: c.execute(taking).all())
        found = (self._try_decrypt(row.body, box) for row in sorted(rows, key=lambda row: row.id))
        return [letter for letter in found if letter is not None]

    def listen(self) -> AsyncGenerator[str]:
        """The boxes that letters are put into from now on, by anybody; the empty name means any."""
        return self._signals.listen(MAILBOX_CHANNEL)

    def _try_decrypt(self, body: bytes, box: str) -> bytes | None:
        try:
            return self._cipher.decrypt(body, _associated_data(box))
        except Unreadable as error:
            _log.warning("a letter is thrown away: %s", error.cause)
            return None


def _associated_data(box: str) -> str:
    return f"letters.body {box}"
