"""Encrypted messages between processes that share a database, delivered in order and at most once.

Their table is named ``letters``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from sqlalchemy import Connection, delete, select

from toolyard.store.change_feed.signals import MAILBOX_CHANNEL, Signals
from toolyard.store.errors import Unreadable
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.executor import DatabaseExecutor, Repository, transaction
from toolyard.store.sql.tables import letters

__all__ = ["SqlMailbox"]

_MAX_AGE_SECONDS = 900.0
"""Age after which a message is deleted, since its recipient must have stopped."""

_log = logging.getLogger("toolyard.store.letters")


class SqlMailbox(Repository):
    """Mailboxes of all processes. Each reader chooses a name that no other process can guess."""

    def __init__(
        self, executor: DatabaseExecutor, cipher: Cipher, signals: Signals, clock: Callable[[], float]
    ) -> None:
        super().__init__(executor)
        self._cipher = cipher
        self._signals = signals
        self._clock = clock

    @transaction
    def post(self, connection: Connection, mailbox_name: str, message: bytes) -> None:
        """Put a message into a mailbox. Raises StoreError."""
        body, now = self._cipher.encrypt(message, _associated_data(mailbox_name)), self._clock()
        connection.execute(delete(letters).where(letters.c.sent_at < now - _MAX_AGE_SECONDS))
        connection.execute(letters.insert().values(box=mailbox_name, sent_at=now, body=body))
        self._signals.notify(connection, MAILBOX_CHANNEL, mailbox_name)

    async def take(self, mailbox_name: str) -> Sequence[bytes]:
        """Remove and return the messages of a mailbox, oldest first. Raises StoreError."""
        in_box = letters.c.box == mailbox_name
        first_message = select(letters.c.id).where(in_box).limit(1)
        # Read before deleting, so that polling an empty mailbox does not take SQLite's write lock.
        if await self._executor.read(lambda connection: connection.execute(first_message).first()) is None:
            return ()
        # Deleted and returned by one statement, so that a message is delivered at most once. DELETE has no
        # ORDER BY, hence the sort by id below.
        statement = delete(letters).where(in_box).returning(letters.c.id, letters.c.body)
        rows: Sequence[Any] = await self._executor.write(lambda c: c.execute(statement).all())
        messages = (self._try_decrypt(row.body, mailbox_name) for row in sorted(rows, key=lambda row: row.id))
        return [message for message in messages if message is not None]

    def watch_mailbox_names(self) -> AsyncGenerator[str]:
        """Yield the names of mailboxes that get messages; an empty name means that any of them may have."""
        return self._signals.listen(MAILBOX_CHANNEL)

    def _try_decrypt(self, body: bytes, mailbox_name: str) -> bytes | None:
        try:
            return self._cipher.decrypt(body, _associated_data(mailbox_name))
        except Unreadable as error:
            _log.warning("a message from another replica was discarded: %s", error.cause)
            return None


def _associated_data(mailbox_name: str) -> str:
    return f"letters.body {mailbox_name}"
