"""The one way to the database: pieces of work, each run in a thread that has a connection.

The drivers are the plain ones. A piece of work costs one change of thread however many statements it has,
which is less than the asynchronous drivers cost, with SQLite by far; and work that was begun is finished,
whoever stops waiting for it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from toolyard.errors import ToolyardError
from toolyard.store.errors import Conflict, DatabaseUnavailable, StoreClosed, StoreError, Unstorable
from toolyard.store.sql.dialects import Engines, hint_for, is_retryable, is_timeout_error, violated_constraint

__all__ = ["CircuitBreaker", "DatabaseExecutor", "DatabaseWork"]


class CircuitBreaker:
    """Closed: everything is allowed. Open: one attempt at a time, and all others are refused at once instead
    of waiting for the same time limit. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trip_count = 0
        self._is_open = self._is_probing = False

    def trip(self) -> None:
        """Open it: the server left something unanswered."""
        with self._lock:
            self._is_open = True
            self._trip_count += 1

    @contextmanager
    def attempt(self) -> Generator[bool]:
        """Yield whether to go on. An allowed attempt during which it does not trip closes it."""
        with self._lock:
            probe, trips = self._is_open and not self._is_probing, self._trip_count
            allowed = probe or not self._is_open
            self._is_probing = self._is_probing or probe
        try:
            yield allowed
        finally:
            if probe:
                with self._lock:
                    self._is_probing = False
                    self._is_open = self._trip_count != trips


_T = TypeVar("_T")
_D = TypeVar("_D")

DatabaseWork = Callable[[Connection], _T]
"""Statements, one after the other. It may run twice, so it must change nothing but the database."""

_MAX_ATTEMPTS = 3
_CLOSE_TIMEOUT_SECONDS = 10.0
"""Seconds that closing gives to work that was begun."""
_SIGNALS_INFO_KEY = "toolyard.said"
_log = logging.getLogger("toolyard.store.working")
_CONFLICT_MESSAGES = {"unique": "there is one like it already", "reference": "what this belongs to is gone"}


class DatabaseExecutor:
    """Runs work for every repository of one database."""

    def __init__(self, engines: Engines) -> None:
        self.engines = engines
        self._read_pool = ThreadPoolExecutor(engines.reader_connections, "toolyard-read")
        self._write_pool = self._read_pool
        if engines.writer_connections is not None:
            self._write_pool = ThreadPoolExecutor(engines.writer_connections, "toolyard-write")
        self._closed = self._is_aborted = False
        self._breaker = CircuitBreaker()
        self.told: Callable[[Sequence[tuple[str, str]]], None] | None = None
        """Gets what was said in a transaction, in its thread, once it is on the disk."""

    def queue_signal(self, connection: Connection, signal: tuple[str, str]) -> None:
        """Say something as a part of this connection's transaction."""
        connection.info.setdefault(_SIGNALS_INFO_KEY, []).append(signal)

    async def file_version(self) -> object:
        """Of SQLite's file: another one when another process has written to it. Raises StoreError."""
        return await self._run_in_pool(self._write_pool, self._run_without_transaction, _read_data_version)

    async def read(self, work: DatabaseWork[_T]) -> _T:
        """Run what only reads. Each statement sees what was written before it. Raises StoreError."""
        return await self._run_in_pool(self._read_pool, self._run_read, work)

    async def read_or_default(self, work: DatabaseWork[_T], default: _D) -> _T | _D:
        """The same for what somebody named: a name that cannot be stored is the name of nothing."""
        try:
            return await self.read(work)
        except Unstorable:
            return default

    async def write(self, work: DatabaseWork[_T]) -> _T:
        """Run a transaction: all of it is on the disk afterwards, or nothing was done. Raises StoreError, and
        what the work itself raises."""
        return await self._run_in_pool(self._write_pool, self._run_transaction, work)

    async def change(self, work: DatabaseWork[_T], default: _D) -> _T | _D:
        """The same for what somebody named: a name that cannot be stored is the name of nothing."""
        try:
            return await self.write(work)
        except Unstorable:
            return default

    async def close(self) -> None:
        """Finish what was begun, then close every connection. Bounded, even where the database hangs."""
        self._closed = True
        ending = asyncio.ensure_future(asyncio.to_thread(self._shut_down))
        await asyncio.wait([ending], timeout=_CLOSE_TIMEOUT_SECONDS)
        if not ending.done():
            _log.warning(
                "the database %s does not answer: its connections are cut", self.engines.display_name
            )
            self._is_aborted = True
            self.engines.abort_connections()
        await ending

    def _shut_down(self) -> None:
        self._read_pool.shutdown()
        self._write_pool.shutdown()
        self.engines.dispose()

    async def _run_in_pool(
        self, pool: ThreadPoolExecutor, run: Callable[[DatabaseWork[_T]], _T], work: DatabaseWork[_T]
    ) -> _T:
        if self._closed:
            raise _store_closed_error()
        submitted = pool.submit(self._run_with_breaker, run, work)
        limit, expired = self.engines.limits.queue, False

        def cancel_if_queued() -> None:
            nonlocal expired
            # Only work that has not begun can be cancelled; what has begun has time limits of its own.
            expired = submitted.cancel()

        timer = asyncio.get_running_loop().call_later(limit, cancel_if_queued)
        try:
            return await asyncio.wrap_future(submitted)
        except asyncio.CancelledError:
            if not expired:
                raise
            raise DatabaseUnavailable(
                f"no connection to the database {self.engines.display_name} became free within {limit:g} s",
                hint="the database is slow or overloaded: look at what it is doing",
            ) from None
        finally:
            timer.cancel()

    def _run_read(self, work: DatabaseWork[_T]) -> _T:
        with self.engines.reader.connect() as connection:
            return work(connection)

    def _run_without_transaction(self, work: DatabaseWork[_T]) -> _T:
        """On the connection that writes, outside of a transaction."""
        with self.engines.writer.connect() as connection:
            return work(connection)

    def _run_transaction(self, work: DatabaseWork[_T]) -> _T:
        with self.engines.writer.connect() as connection:
            connection.info.pop(_SIGNALS_INFO_KEY, None)
            transaction = connection.begin()
            try:
                done = work(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                raise self._unavailable_error(
                    error, "it is not known whether the last change was kept"
                ) from error
            if (said := connection.info.pop(_SIGNALS_INFO_KEY, None)) and self.told is not None:
                self.told(said)
            return done

    def _run_with_breaker(self, run: Callable[[DatabaseWork[_T]], _T], work: DatabaseWork[_T]) -> _T:
        """Run it, and say in our words what went wrong."""
        with self._breaker.attempt() as allowed:
            if self._is_aborted:
                raise _store_closed_error()
            if not allowed:
                raise DatabaseUnavailable(
                    f"the database {self.engines.display_name} does not answer; a new "
                    "connection is being tried",
                    hint="check that PostgreSQL runs there and is not frozen, then try again",
                )
            return self._run_with_retries(run, work)

    def _run_with_retries(self, run: Callable[[DatabaseWork[_T]], _T], work: DatabaseWork[_T]) -> _T:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return self._run_once(run, work)
            except DBAPIError as error:
                if self._is_aborted or not is_retryable(error):
                    raise self._unavailable_error(error) from error
        try:
            return self._run_once(run, work)
        except DBAPIError as error:
            raise self._unavailable_error(error) from error

    def _run_once(self, run: Callable[[DatabaseWork[_T]], _T], work: DatabaseWork[_T]) -> _T:
        try:
            return run(work)
        except DBAPIError as error:
            if (what := violated_constraint(error)) is not None:
                raise Conflict(_CONFLICT_MESSAGES[what], hint="look again, and try again") from error
            raise
        except UnicodeEncodeError:
            raise Unstorable("a text holds half a character (a lone surrogate)", hint="remove it") from None
        except StatementError as error:
            if isinstance(error.orig, ToolyardError):
                raise error.orig from None
            raise StoreError(f"a value cannot be stored: {error.orig}") from error
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise self._unavailable_error(error) from error

    def _unavailable_error(self, error: Exception, detail: str = "") -> DatabaseUnavailable:
        if is_timeout_error(error):
            self._breaker.trip()
        return unavailable_error(self.engines, error, detail)


def _store_closed_error() -> StoreClosed:
    return StoreClosed("the store was closed", hint="this process is stopping")


def _read_data_version(connection: Connection) -> tuple[object, int]:
    # A statement of SQLAlchemy's would begin a transaction, and wait for the write lock.
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    return driver, driver.execute("PRAGMA data_version").fetchone()[0]


def unavailable_error(engines: Engines, error: Exception, detail: str = "") -> DatabaseUnavailable:
    """The database's own words in one line, with what to do."""
    words = " ".join(str(getattr(error, "orig", None) or error).split())
    return DatabaseUnavailable(
        f"the database {engines.display_name} cannot be used: {words}{f'; {detail}' if detail else ''}",
        hint=hint_for(engines, error),
    )
