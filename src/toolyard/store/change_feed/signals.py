"""Word of what changed: to the tasks of this process at once, and to all others who use the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from sqlalchemy import Connection, text

from toolyard.store.errors import StoreError
from toolyard.store.sql.dialects import Engines
from toolyard.store.sql.executor import DatabaseExecutor

__all__ = [
    "CHATS_CHANNEL",
    "CHAT_STOPS_CHANNEL",
    "MAILBOX_CHANNEL",
    "POSTGRESQL_CHANNEL",
    "REGISTRY_CHANNEL",
    "REMOVED_CREDENTIALS_CHANNEL",
    "REVOKED_ACCESS_CHANNEL",
    "ChangeListener",
    "Signals",
]

POSTGRESQL_CHANNEL = "toolyard"
"""PostgreSQL's name for the one channel that carries all of ours."""
CHATS_CHANNEL = "chats"
"""Ids of chats, with blanks between them, that have more events or are gone."""
CHAT_STOPS_CHANNEL = "stops"
"""The id of a chat that somebody wants to stop."""
REVOKED_ACCESS_CHANNEL = "tokens"
"""The id of a user of whom a token, a session or the account itself is gone or counts no more."""
REMOVED_CREDENTIALS_CHANNEL = "credentials"
"""The id of a user whose stored credentials for servers are gone."""
REGISTRY_CHANNEL = "servers"
"""The id of a server or of an instance of the registry that changed."""
MAILBOX_CHANNEL = "letters"
"""The box that a letter was put into."""

_MAX_PENDING_MESSAGES = 1_000
"""Texts that may wait for a slow listener; one that is slower looks at everything again."""
_MAX_MESSAGE_BYTES = 7_000
"""Bytes of one text; PostgreSQL carries 8,000."""
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 5.0

_NOTIFY_STATEMENT = text("SELECT pg_notify(:channel, :payload)")
_log = logging.getLogger("toolyard.store.signals")


class ChangeListener(Protocol):
    """Hears what other processes change."""

    async def run(self, on_message: Callable[[str], None], on_resync: Callable[[], None]) -> None:
        """Hand on each word of others. ``again``: from now on nothing is missed, before something may have
        been. Returns where nobody listens any more; raises StoreError when it can hear no longer."""
        ...


class Signals:
    """Listeners by channel. What is told in a transaction is heard when, and only when, it is kept."""

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor
        self._sender_id = secrets.token_hex(4)
        self._listeners: dict[str, set[_SubscriberQueue]] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.is_listening = False
        """Whether what others say is heard."""
        executor.told = self._on_commit

    def notify(
        self, connection: Connection, channel: str, message: str, *, include_local: bool = True
    ) -> None:
        """Say something on a channel, as a part of this transaction. ``here`` false: only to others."""
        if include_local:
            self._executor.queue_signal(connection, (channel, message))
        if connection.dialect.name == "postgresql":
            payload = f"{self._sender_id} {channel} {message if _fits_in_notification(message) else ''}"
            connection.execute(_NOTIFY_STATEMENT, {"channel": POSTGRESQL_CHANNEL, "payload": payload})

    async def send(self, channel: str, message: str) -> None:
        """Say something by itself. Raises StoreError."""

        def work(connection: Connection) -> None:
            if connection.dialect.name == "sqlite":
                # Others hear only that something was written.
                count = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
                connection.exec_driver_sql(f"PRAGMA user_version = {(count + 1) % 2**31}")
            self.notify(connection, channel, message)

        await self._executor.write(work)

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """What is said on a channel from now on; equal texts that wait are one. The empty text means: more
        may have been said, look at everything; it is always the first. Ends when this is closed."""
        if self._closed:
            return
        listener = _SubscriberQueue()
        self._listeners.setdefault(channel, set()).add(listener)
        self._start_listener()
        try:
            yield ""
            while heard := await listener.next_messages():
                for what in heard:
                    yield what
        finally:
            self._listeners[channel].discard(listener)
            if not self._listeners[channel]:
                del self._listeners[channel]

    @property
    def wanted(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    async def close(self) -> None:
        """End every listening."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.end()
        # Not kept: a task that was cancelled while it connected holds the half open connection.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # What is heard.

    def _start_listener(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run_listener(), name="toolyard-signals")

    async def _run_listener(self) -> None:
        ear, pause = self._create_listener(self._executor.engines), _FIRST_RETRY_SECONDS
        while self.wanted:
            try:
                await ear.run(self._on_message, self._on_resync)
            except StoreError as error:
                _log.warning("other processes cannot be heard: %s", error.cause)
            except Exception:  # noqa: BLE001 - the top of a task: without it nobody would ever hear again
                _log.exception("other processes cannot be heard")
            if self.wanted:
                pause = _FIRST_RETRY_SECONDS if self.is_listening else min(pause * 2, _MAX_RETRY_SECONDS)
                self.is_listening = False
                await asyncio.sleep(pause)
        self.is_listening = False

    def _create_listener(self, engines: Engines) -> ChangeListener:
        if engines.kind == "sqlite":
            from toolyard.store.change_feed.file_polling import SqliteChangeListener  # each has its own

            return SqliteChangeListener(self._executor, lambda: self.wanted)
        from toolyard.store.change_feed.postgres_listener import (
            PostgresChangeListener,  # its driver is loaded only with that database
        )

        return PostgresChangeListener(engines)

    def _on_message(self, payload: str) -> None:
        who, _, rest = payload.partition(" ")
        channel, _, what = rest.partition(" ")
        if who != self._sender_id:
            self._deliver([(channel, what)])

    def _on_resync(self) -> None:
        self.is_listening = True
        self._deliver([(channel, "") for channel in self._listeners])

    def _on_commit(self, signals: Sequence[tuple[str, str]]) -> None:
        """Called by a worker thread."""
        if self._loop is not None and self._listeners:
            # The loop may have ended without closing us; then nobody listens.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver, signals)

    def _deliver(self, signals: Sequence[tuple[str, str]]) -> None:
        for channel, what in signals:
            for listener in self._listeners.get(channel, ()):
                listener.enqueue(what)


def _fits_in_notification(message: str) -> bool:
    try:
        return "\0" not in message and len(message.encode()) <= _MAX_MESSAGE_BYTES
    except UnicodeEncodeError:
        return False


class _SubscriberQueue:
    """What waits for one who listens."""

    def __init__(self) -> None:
        self._pending: dict[str, None] = {}
        self._pending_event = asyncio.Event()
        self._ended = False

    def enqueue(self, message: str) -> None:
        if message == "" or len(self._pending) >= _MAX_PENDING_MESSAGES:
            self._pending = {"": None}
        elif "" not in self._pending:
            self._pending[message] = None
        self._pending_event.set()

    def end(self) -> None:
        self._ended = True
        self._pending_event.set()

    async def next_messages(self) -> Sequence[str]:
        """Nothing: it is over."""
        await self._pending_event.wait()
        self._pending_event.clear()
        if self._ended:
            return ()
        heard, self._pending = list(self._pending), {}
        return heard
