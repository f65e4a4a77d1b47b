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
from toolyard.store.sql.executor import Workshop

__all__ = ["CHANNEL", "CHATS", "CREDENTIALS", "LETTERS", "SERVERS", "STOPS", "TOKENS", "Ear", "Signals"]

CHANNEL = "toolyard"
"""PostgreSQL's name for the one channel that carries all of ours."""
CHATS = "chats"
"""Ids of chats, with blanks between them, that have more events or are gone."""
STOPS = "stops"
"""The id of a chat that somebody wants to stop."""
TOKENS = "tokens"
"""The id of a user of whom a token, a session or the account itself is gone or counts no more."""
CREDENTIALS = "credentials"
"""The id of a user whose stored credentials for servers are gone."""
SERVERS = "servers"
"""The id of a server or of an instance of the registry that changed."""
LETTERS = "letters"
"""The box that a letter was put into."""

_WAITING = 1_000
"""Texts that may wait for a slow listener; one that is slower looks at everything again."""
_LONGEST = 7_000
"""Bytes of one text; PostgreSQL carries 8,000."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0

_NOTIFY = text("SELECT pg_notify(:channel, :payload)")
_log = logging.getLogger("toolyard.store.signals")


class Ear(Protocol):
    """Hears what other processes change."""

    async def hear(self, said: Callable[[str], None], again: Callable[[], None]) -> None:
        """Hand on each word of others. ``again``: from now on nothing is missed, before something may have
        been. Returns where nobody listens any more; raises StoreError when it can hear no longer."""
        ...


class Signals:
    """Listeners by channel. What is told in a transaction is heard when, and only when, it is kept."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._me = secrets.token_hex(4)
        self._listeners: dict[str, set[_Listener]] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.hears = False
        """Whether what others say is heard."""
        workshop.told = self._committed

    def tell(self, connection: Connection, channel: str, what: str, *, here: bool = True) -> None:
        """Say something on a channel, as a part of this transaction. ``here`` false: only to others."""
        if here:
            self._workshop.say(connection, (channel, what))
        if connection.dialect.name == "postgresql":
            payload = f"{self._me} {channel} {what if _fits(what) else ''}"
            connection.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})

    async def send(self, channel: str, what: str) -> None:
        """Say something by itself. Raises StoreError."""

        def work(connection: Connection) -> None:
            if connection.dialect.name == "sqlite":
                # Others hear only that something was written.
                count = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
                connection.exec_driver_sql(f"PRAGMA user_version = {(count + 1) % 2**31}")
            self.tell(connection, channel, what)

        await self._workshop.write(work)

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """What is said on a channel from now on; equal texts that wait are one. The empty text means: more
        may have been said, look at everything; it is always the first. Ends when this is closed."""
        if self._closed:
            return
        listener = _Listener()
        self._listeners.setdefault(channel, set()).add(listener)
        self._start()
        try:
            yield ""
            while heard := await listener.heard():
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

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._hear(), name="toolyard-signals")

    async def _hear(self) -> None:
        ear, pause = self._ear(self._workshop.engines), _FIRST_PAUSE
        while self.wanted:
            try:
                await ear.hear(self._said, self._again)
            except StoreError as error:
                _log.warning("other processes cannot be heard: %s", error.cause)
            except Exception:  # noqa: BLE001 - the top of a task: without it nobody would ever hear again
                _log.exception("other processes cannot be heard")
            if self.wanted:
                pause = _FIRST_PAUSE if self.hears else min(pause * 2, _LONGEST_PAUSE)
                self.hears = False
                await asyncio.sleep(pause)
        self.hears = False

    def _ear(self, engines: Engines) -> Ear:
        if engines.kind == "sqlite":
            from toolyard.store.change_feed.file_polling import FileEar  # each has its own

            return FileEar(self._workshop, lambda: self.wanted)
        from toolyard.store.change_feed.postgres_listener import (
            PostgresEar,  # its driver is loaded only with that database
        )

        return PostgresEar(engines)

    def _said(self, payload: str) -> None:
        who, _, rest = payload.partition(" ")
        channel, _, what = rest.partition(" ")
        if who != self._me:
            self._deliver([(channel, what)])

    def _again(self) -> None:
        self.hears = True
        self._deliver([(channel, "") for channel in self._listeners])

    def _committed(self, said: Sequence[tuple[str, str]]) -> None:
        """Called by a worker thread."""
        if self._loop is not None and self._listeners:
            # The loop may have ended without closing us; then nobody listens.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver, said)

    def _deliver(self, said: Sequence[tuple[str, str]]) -> None:
        for channel, what in said:
            for listener in self._listeners.get(channel, ()):
                listener.hear(what)


def _fits(what: str) -> bool:
    try:
        return "\0" not in what and len(what.encode()) <= _LONGEST
    except UnicodeEncodeError:
        return False


class _Listener:
    """What waits for one who listens."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._any = asyncio.Event()
        self._ended = False

    def hear(self, what: str) -> None:
        if what == "" or len(self._waiting) >= _WAITING:
            self._waiting = {"": None}
        elif "" not in self._waiting:
            self._waiting[what] = None
        self._any.set()

    def end(self) -> None:
        self._ended = True
        self._any.set()

    async def heard(self) -> Sequence[str]:
        """Nothing: it is over."""
        await self._any.wait()
        self._any.clear()
        if self._ended:
            return ()
        heard, self._waiting = list(self._waiting), {}
        return heard
