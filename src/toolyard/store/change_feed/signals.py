"""Notifications of changes, to tasks of this process and to all other processes that use the database.

A notification belongs to a transaction: it is delivered if and only if the transaction commits. PostgreSQL
does that with NOTIFY. SQLite only reveals that the file changed, so every listener is then told to check
everything.

Delivery is a hint, never the only copy of a fact. An empty message means that notifications may have been
lost, and a listener must be able to read the current state from the tables. So a lost notification costs time
only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence

from sqlalchemy import Connection, Executable, text

from toolyard.store.errors import StoreError
from toolyard.store.sql.dialects import Engines, build_postgresql_session_setup
from toolyard.store.sql.executor import (
    DatabaseExecutor,
    Repository,
    transaction,
    transaction_by_key,
    unavailable_error,
)

__all__ = [
    "AGENTS_CHANNEL",
    "CHATS_CHANNEL",
    "CHAT_STOPS_CHANNEL",
    "KEY_CHANNEL",
    "MAILBOX_CHANNEL",
    "MODELS_CHANNEL",
    "POSTGRESQL_CHANNEL",
    "REGISTRY_CHANNEL",
    "REMOVED_CREDENTIALS_CHANNEL",
    "REVOKED_ACCESS_CHANNEL",
    "Signals",
]


POSTGRESQL_CHANNEL = "toolyard"
"""PostgreSQL channel that carries the messages of all channels below."""
CHATS_CHANNEL = "chats"
"""Ids of chats, separated by spaces, that got new events or were deleted."""
CHAT_STOPS_CHANNEL = "stops"
"""Id of a chat whose turn a user asked to stop."""
REVOKED_ACCESS_CHANNEL = "tokens"
"""Id of a user who lost access: a token, session or account was removed, disabled or changed."""
REMOVED_CREDENTIALS_CHANNEL = "credentials"
"""Id of a user whose stored credentials for servers were removed."""
REGISTRY_CHANNEL = "servers"
"""Id of a registry server or instance that changed, or of a user whose instances changed."""
AGENTS_CHANNEL = "agents"
"""Id of a stored agent that was added, changed or deleted."""
MODELS_CHANNEL = "models"
"""Name of a stored model that was added, changed or deleted."""
KEY_CHANNEL = "key"
"""Empty message after the secret key of the database was changed."""
MAILBOX_CHANNEL = "letters"
"""Name of the mailbox that got a message."""

_MAX_MESSAGE_BYTES = 7_000
"""Maximum size of a message; PostgreSQL allows 8,000 bytes including our prefix."""
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 5.0
_POLL_INTERVAL_SECONDS = 0.2
"""Interval between two checks of a SQLite file."""

_NOTIFY_STATEMENT = text("SELECT pg_notify(:channel, :payload)")
_log = logging.getLogger("toolyard.store.signals")


class Signals(Repository):
    """Sends and receives notifications by channel. One background task receives those of other processes."""

    def __init__(self, executor: DatabaseExecutor, *, max_pending: int = 1_000) -> None:
        """``max_pending`` is the maximum number of queued messages for one listener. Beyond it the listener
        must check everything."""
        super().__init__(executor)
        self._max_pending = max_pending
        self._sender_id = secrets.token_hex(4)
        self._listeners: dict[str, set[_SubscriberQueue]] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.is_listening = False
        """Whether notifications from other processes are being received."""
        self._revisions: Counter[str] = Counter()
        self._resync_count = 0
        executor.on_commit = self._on_commit

    def notify(
        self, connection: Connection, channel: str, message: str, *, include_local: bool = True
    ) -> None:
        """Send a message when this transaction commits; ``include_local`` sends it to this process, too."""
        if include_local:
            self._executor.queue_signal(connection, (channel, message))
        if connection.dialect.name == "postgresql":
            # A message that does not fit is sent empty, which makes listeners check everything.
            payload = f"{self._sender_id} {channel} {message if _fits_in_notification(message) else ''}"
            connection.execute(_NOTIFY_STATEMENT, {"channel": POSTGRESQL_CHANNEL, "payload": payload})

    @transaction_by_key(0)
    def execute(self, connection: Connection, statement: Executable, channel: str, message: str) -> int:
        """Run a statement for a key from outside, and send a message if it changes any rows.

        Return the number of changed rows. Raises StoreError.
        """
        changed = connection.execute(statement).rowcount
        if changed:
            self.notify(connection, channel, message)
        return changed

    @transaction
    def send(self, connection: Connection, channel: str, message: str) -> None:
        """Send a message in a separate transaction. Raises StoreError."""
        if connection.dialect.name == "sqlite":
            # Other processes notice any write to the file. ``user_version`` has no other use here.
            count = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
            connection.exec_driver_sql(f"PRAGMA user_version = {(count + 1) % 2**31}")
        self.notify(connection, channel, message)

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """Yield the messages of a channel. Equal messages that are queued are yielded once.

        An empty message means that others may have been missed, and the listener should check everything. The
        first message is always empty. Ends when ``close`` is called.
        """
        if self._closed:
            return
        listener = _SubscriberQueue(self._max_pending)
        self._listeners.setdefault(channel, set()).add(listener)
        self._start_listener()
        try:
            # The first message is empty, because changes between the caller's last read and this registration
            # are unknown. The listener is registered before, so none is lost in between.
            yield ""
            while messages := await listener.next_messages():
                for message in messages:
                    yield message
        finally:
            self._listeners[channel].discard(listener)
            if not self._listeners[channel]:
                del self._listeners[channel]

    def revision(self, channel: str) -> tuple[int, int] | None:
        """Return a value that differs after each change that a channel tells about, so that what was read
        before can be used again; None while changes by other processes may be missed.

        A change of this process counts before its transaction returns to the caller.
        """
        is_complete = self.is_listening and self._listeners
        return (self._resync_count, self._revisions[channel]) if is_complete else None

    @property
    def has_listeners(self) -> bool:
        """Return whether any channel has listeners."""
        return bool(self._listeners)

    async def close(self) -> None:
        """End all iterators of ``listen``, and stop receiving."""
        self._closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.end()
        # Drop the reference: a task cancelled while it connects keeps the half-open connection alive.
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # Receiving.

    def _start_listener(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run_listener(), name="toolyard-signals")

    async def _run_listener(self) -> None:
        engines, pause = self._executor.engines, _FIRST_RETRY_SECONDS
        while self.has_listeners:
            try:
                if engines.kind == "sqlite":
                    await self._poll_sqlite()
                else:
                    await _listen_to_postgresql(engines, self._on_message, self._on_resync)
            except StoreError as error:
                _log.warning("cannot receive notifications from other processes: %s", error.cause)
            except Exception:  # noqa: BLE001 - top of a task, which must go on receiving after any error
                _log.exception("cannot receive notifications from other processes")
            if self.has_listeners:
                # The pause grows only while no attempt succeeds. After each success ``_on_resync`` makes the
                # listeners check everything, so nothing is missed during the pause.
                pause = _FIRST_RETRY_SECONDS if self.is_listening else min(pause * 2, _MAX_RETRY_SECONDS)
                self.is_listening = False
                await asyncio.sleep(pause)
        self.is_listening = False

    async def _poll_sqlite(self) -> None:
        """Make all listeners check everything when the file changes, while there are listeners.

        SQLite has no notifications between processes. ``PRAGMA data_version`` tells that the file changed but
        not which rows. The version is read on the writer's connection, where it changes with commits of other
        connections but not with our own. Raises StoreError.
        """
        last_version: object = None
        while self.has_listeners:
            version = await self._executor.file_version()
            if version != last_version:
                self._on_resync()
            last_version = version
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    def _on_message(self, payload: str) -> None:
        sender_id, _, rest = payload.partition(" ")
        channel, _, message = rest.partition(" ")
        # PostgreSQL also returns our own notifications, which were delivered after the commit.
        if sender_id != self._sender_id:
            self._deliver([(channel, message)])

    def _on_resync(self) -> None:
        self.is_listening = True
        self._resync_count += 1
        self._deliver([(channel, "") for channel in self._listeners])

    def _on_commit(self, signals: Sequence[tuple[str, str]]) -> None:
        """Deliver the signals of a committed transaction. Called in a worker thread."""
        if self._loop is not None and self._listeners:
            # RuntimeError: the loop was closed without closing us, so there are no listeners.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver, signals)

    def _deliver(self, signals: Sequence[tuple[str, str]]) -> None:
        for channel, message in signals:
            self._revisions[channel] += 1
            for listener in self._listeners.get(channel, ()):
                listener.enqueue(message)


def _fits_in_notification(message: str) -> bool:
    try:
        return "\0" not in message and len(message.encode()) <= _MAX_MESSAGE_BYTES
    except UnicodeEncodeError:
        return False


class _SubscriberQueue:
    """Queue of one listener, without duplicates. An empty message replaces all others."""

    def __init__(self, max_pending: int) -> None:
        self._max_pending = max_pending
        self._pending: dict[str, None] = {}
        self._pending_event = asyncio.Event()
        self._ended = False

    def enqueue(self, message: str) -> None:
        # The empty message covers all others, so that a slow listener costs bounded memory and still misses
        # nothing.
        if message == "" or len(self._pending) >= self._max_pending:
            self._pending = {"": None}
        elif "" not in self._pending:
            self._pending[message] = None
        self._pending_event.set()

    def end(self) -> None:
        self._ended = True
        self._pending_event.set()

    async def next_messages(self) -> Sequence[str]:
        """Wait for messages. Return an empty sequence after ``end``."""
        await self._pending_event.wait()
        self._pending_event.clear()
        if self._ended:
            return ()
        messages, self._pending = list(self._pending), {}
        return messages


async def _listen_to_postgresql(
    engines: Engines, on_message: Callable[[str], None], on_resync: Callable[[], None]
) -> None:
    """Pass each notification to ``on_message``, until cancelled. Raises StoreError for a lost connection.

    ``on_resync`` is called once all further notifications are received. The connection is asynchronous and
    outside the pool: a worker thread that waits for hours would be missing for other work.
    """
    import psycopg  # imported late: slow to load, and not needed with SQLite

    from toolyard.store.sql.postgres_connections import TimedAsyncConnection  # loads psycopg

    try:
        limits = engines.limits
        connection = await TimedAsyncConnection.open(engines.connect_args, limits.answer)
        try:
            await connection.execute(build_postgresql_session_setup(limits))
            # Resynchronise only after LISTEN is in effect. In the other order a change between the two would
            # be neither read nor notified.
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
        raise unavailable_error(engines, error) from error
