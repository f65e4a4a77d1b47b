"""The one way to the database: pieces of work, each run in a thread that has a connection.

The drivers are the plain ones. A piece of work costs one change of thread however many statements it has,
which is less than the asynchronous drivers cost, with SQLite by far; and work that was begun is finished,
whoever stops waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from toolyard.errors import ToolyardError
from toolyard.store.errors import Conflict, DatabaseUnavailable, StoreClosed, StoreError, Unstorable
from toolyard.store.sql.circuit_breaker import Breaker
from toolyard.store.sql.dialects import Engines, clash, hint_for, passing, timed_out

__all__ = ["Work", "Workshop"]

_T = TypeVar("_T")
_D = TypeVar("_D")

Work = Callable[[Connection], _T]
"""Statements, one after the other. It may run twice, so it must change nothing but the database."""

_TRIES = 3
_LAST = 10.0
"""Seconds that closing gives to work that was begun."""
_SAID = "toolyard.said"
_log = logging.getLogger("toolyard.store.working")
_CONFLICTS = {"unique": "there is one like it already", "reference": "what this belongs to is gone"}


class Workshop:
    """Runs work for every repository of one database."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self._readers = ThreadPoolExecutor(engines.readers, "toolyard-read")
        self._writers = self._readers
        if engines.writers is not None:
            self._writers = ThreadPoolExecutor(engines.writers, "toolyard-write")
        self._closed = self._cut = False
        self._breaker = Breaker()
        self.told: Callable[[Sequence[tuple[str, str]]], None] | None = None
        """Gets what was said in a transaction, in its thread, once it is on the disk."""

    def say(self, connection: Connection, what: tuple[str, str]) -> None:
        """Say something as a part of this connection's transaction."""
        connection.info.setdefault(_SAID, []).append(what)

    async def file_version(self) -> object:
        """Of SQLite's file: another one when another process has written to it. Raises StoreError."""
        return await self._run(self._writers, self._bare, _file_version)

    async def read(self, work: Work[_T]) -> _T:
        """Run what only reads. Each statement sees what was written before it. Raises StoreError."""
        return await self._run(self._readers, self._reading, work)

    async def find(self, work: Work[_T], otherwise: _D) -> _T | _D:
        """The same for what somebody named: a name that cannot be stored is the name of nothing."""
        try:
            return await self.read(work)
        except Unstorable:
            return otherwise

    async def write(self, work: Work[_T]) -> _T:
        """Run a transaction: all of it is on the disk afterwards, or nothing was done. Raises StoreError, and
        what the work itself raises."""
        return await self._run(self._writers, self._writing, work)

    async def change(self, work: Work[_T], otherwise: _D) -> _T | _D:
        """The same for what somebody named: a name that cannot be stored is the name of nothing."""
        try:
            return await self.write(work)
        except Unstorable:
            return otherwise

    async def close(self) -> None:
        """Finish what was begun, then close every connection. Bounded, even where the database hangs."""
        self._closed = True
        ending = asyncio.ensure_future(asyncio.to_thread(self._end))
        await asyncio.wait([ending], timeout=_LAST)
        if not ending.done():
            _log.warning("the database %s does not answer: its connections are cut", self.engines.where)
            self._cut = True
            self.engines.cut()
        await ending

    def _end(self) -> None:
        self._readers.shutdown()
        self._writers.shutdown()
        self.engines.dispose()

    async def _run(self, threads: ThreadPoolExecutor, how: Callable[[Work[_T]], _T], work: Work[_T]) -> _T:
        if self._closed:
            raise _closed()
        submitted = threads.submit(self._told, how, work)
        limit, expired = self.engines.limits.queue, False

        def expire() -> None:
            nonlocal expired
            # Only work that has not begun can be cancelled; what has begun has time limits of its own.
            expired = submitted.cancel()

        timer = asyncio.get_running_loop().call_later(limit, expire)
        try:
            return await asyncio.wrap_future(submitted)
        except asyncio.CancelledError:
            if not expired:
                raise
            raise DatabaseUnavailable(
                f"no connection to the database {self.engines.where} became free within {limit:g} s",
                hint="the database is slow or overloaded: look at what it is doing",
            ) from None
        finally:
            timer.cancel()

    def _reading(self, work: Work[_T]) -> _T:
        with self.engines.reader.connect() as connection:
            return work(connection)

    def _bare(self, work: Work[_T]) -> _T:
        """On the connection that writes, outside of a transaction."""
        with self.engines.writer.connect() as connection:
            return work(connection)

    def _writing(self, work: Work[_T]) -> _T:
        with self.engines.writer.connect() as connection:
            connection.info.pop(_SAID, None)
            transaction = connection.begin()
            try:
                done = work(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                raise self._unavailable(error, "it is not known whether the last change was kept") from error
            if (said := connection.info.pop(_SAID, None)) and self.told is not None:
                self.told(said)
            return done

    def _told(self, how: Callable[[Work[_T]], _T], work: Work[_T]) -> _T:
        """Run it, and say in our words what went wrong."""
        with self._breaker.attempt() as allowed:
            if self._cut:
                raise _closed()
            if not allowed:
                raise DatabaseUnavailable(
                    f"the database {self.engines.where} does not answer; a new connection is being tried",
                    hint="check that PostgreSQL runs there and is not frozen, then try again",
                )
            return self._tried(how, work)

    def _tried(self, how: Callable[[Work[_T]], _T], work: Work[_T]) -> _T:
        for _ in range(_TRIES - 1):
            try:
                return self._once(how, work)
            except DBAPIError as error:
                if self._cut or not passing(error):
                    raise self._unavailable(error) from error
        try:
            return self._once(how, work)
        except DBAPIError as error:
            raise self._unavailable(error) from error

    def _once(self, how: Callable[[Work[_T]], _T], work: Work[_T]) -> _T:
        try:
            return how(work)
        except DBAPIError as error:
            if (what := clash(error)) is not None:
                raise Conflict(_CONFLICTS[what], hint="look again, and try again") from error
            raise
        except UnicodeEncodeError:
            raise Unstorable("a text holds half a character (a lone surrogate)", hint="remove it") from None
        except StatementError as error:
            if isinstance(error.orig, ToolyardError):
                raise error.orig from None
            raise StoreError(f"a value cannot be stored: {error.orig}") from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception, more: str = "") -> DatabaseUnavailable:
        if timed_out(error):
            self._breaker.trip()
        return unavailable(self.engines, error, more)


def _closed() -> StoreClosed:
    return StoreClosed("the store was closed", hint="this process is stopping")


def _file_version(connection: Connection) -> tuple[object, int]:
    # A statement of SQLAlchemy's would begin a transaction, and wait for the write lock.
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    return driver, driver.execute("PRAGMA data_version").fetchone()[0]


def unavailable(engines: Engines, error: Exception, more: str = "") -> DatabaseUnavailable:
    """The database's own words in one line, with what to do."""
    words = " ".join(str(getattr(error, "orig", None) or error).split())
    return DatabaseUnavailable(
        f"the database {engines.where} cannot be used: {words}{f'; {more}' if more else ''}",
        hint=hint_for(engines, error),
    )
