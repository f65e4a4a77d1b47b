"""Executor that runs all database work in worker threads, one connection each.

The drivers are synchronous. A function with any number of statements costs one thread switch, which is
cheaper than asynchronous drivers, by far with SQLite (``docs/decisions/0012``). Work that has started always
finishes: cancelling its caller never leaves a transaction half done or a connection lost.

Errors of the drivers become StoreError subclasses here, so repositories handle no driver errors apart from
violated constraints.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, Engine, Executable
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from toolyard.errors import ToolyardError
from toolyard.store.errors import Conflict, DatabaseUnavailable, StoreClosed, StoreError, Unstorable
from toolyard.store.sql import dialects

if TYPE_CHECKING:
    from types import CoroutineType

__all__ = [
    "CircuitBreaker",
    "DatabaseExecutor",
    "DatabaseWork",
    "Repository",
    "transaction",
    "transaction_by_key",
]


class CircuitBreaker:
    """Circuit breaker for a server that does not answer. Thread-safe.

    A frozen PostgreSQL accepts packets and never answers, so each caller would block a thread for the whole
    time limit. While the breaker is closed every attempt is allowed. Once open it allows one probe at a time
    and refuses all other attempts at once.
    """

    def __init__(self) -> None:
        self.is_open = False
        """True after a trip, until an attempt succeeds. While it is False, ``attempt`` is not needed."""
        self._lock = threading.Lock()
        self._trip_count = 0
        self._is_probing = False

    def trip(self) -> None:
        """Open the breaker after the server did not answer in time."""
        with self._lock:
            self.is_open = True
            self._trip_count += 1

    @contextmanager
    def attempt(self) -> Generator[bool]:
        """Yield whether the attempt is allowed. A probe that ends without a trip closes the breaker.

        Errors other than timeouts also close it, since they do not block threads. Trips are counted because
        an attempt that started before the breaker opened may trip it while the probe runs.
        """
        with self._lock:
            probe, trips = self.is_open and not self._is_probing, self._trip_count
            allowed = probe or not self.is_open
            self._is_probing = self._is_probing or probe
        try:
            yield allowed
        finally:
            if probe:
                with self._lock:
                    self._is_probing = False
                    self.is_open = self._trip_count != trips


_T = TypeVar("_T")
_D = TypeVar("_D")

DatabaseWork = Callable[[Connection], _T]
"""Function that runs statements. It may be retried, so it must have no effects outside the database."""

_MAX_ATTEMPTS = 3
_SIGNALS_INFO_KEY = "toolyard.said"
"""Key of ``Connection.info`` for the signals queued in the current transaction."""
_log = logging.getLogger("toolyard.store.working")
_CONFLICT_MESSAGES = {
    "unique": "a record with the same key already exists",
    "reference": "the record that this belongs to no longer exists",
}


class DatabaseExecutor:
    """Runs the work of all repositories of one database."""

    def __init__(self, engines: dialects.Engines) -> None:
        self.engines = engines
        self._read_pool = ThreadPoolExecutor(engines.reader_connections, "toolyard-read")
        self._write_pool = self._read_pool
        if engines.writer_connections is not None:
            self._write_pool = ThreadPoolExecutor(engines.writer_connections, "toolyard-write")
        self._closed = self._is_aborted = False
        self._breaker = CircuitBreaker()
        self._file_status = os.stat(engines.display_name) if engines.kind == "sqlite" else None
        self.on_commit: Callable[[Sequence[tuple[str, str]]], None] | None = None
        """Called in the worker thread with the queued signals of a transaction, after its commit."""

    def queue_signal(self, connection: Connection, signal: tuple[str, str]) -> None:
        """Queue a signal (channel and message) that ``on_commit`` gets if the transaction commits."""
        connection.info.setdefault(_SIGNALS_INFO_KEY, []).append(signal)

    async def file_version(self) -> object:
        """Return a value that changes when another process writes to the SQLite file. Raises StoreError."""
        return await self._run_in_pool(self._write_pool, self.engines.writer, _read_data_version)

    async def read(self, work: DatabaseWork[_T]) -> _T:
        """Run work that only reads. Each statement sees all earlier commits. Raises StoreError."""
        return await self._run_in_pool(self._read_pool, self.engines.reader, work)

    async def read_or_default(self, work: DatabaseWork[_T], default: _D) -> _T | _D:
        """Run ``read`` for a key from outside. Return ``default`` if the key cannot be stored.

        No row can have such a key, so the lookup finds nothing instead of raising Unstorable.
        """
        try:
            return await self._run_in_pool(self._read_pool, self.engines.reader, work)
        except Unstorable:
            return default

    async def write(self, work: DatabaseWork[_T]) -> _T:
        """Run a transaction. Its changes are on disk afterwards.

        Raises StoreError, and any error of the work itself; nothing was written then, unless the message
        says that the outcome of the commit is unknown.
        """
        return await self._run_in_pool(self._write_pool, None, work)

    async def write_or_default(self, work: DatabaseWork[_T], default: _D) -> _T | _D:
        """Run ``write`` for a key from outside. Return ``default`` if the key cannot be stored."""
        try:
            return await self.write(work)
        except Unstorable:
            return default

    # Single statements. A key from outside that cannot be stored matches no row.

    async def fetch_rows(self, query: Executable) -> Sequence[Any]:
        """Return all rows of a query. Raises StoreError."""
        return await self.read_or_default(lambda connection: connection.execute(query).all(), ())

    async def fetch_all(self, query: Executable, convert: Callable[[Any], _T]) -> list[_T]:
        """Return all rows of a query, each converted to its record. Raises StoreError."""
        return [convert(row) for row in await self.fetch_rows(query)]

    async def fetch_one(
        self, query: Executable, convert: Callable[[Any], _T], params: Mapping[str, Any] | None = None
    ) -> _T | None:
        """Return the record of the only row of a query; None if there is none. Raises StoreError."""

        def fetch(connection: Connection) -> _T | None:
            row = connection.execute(query, params).one_or_none()
            return None if row is None else convert(row)

        return await self.read_or_default(fetch, None)

    async def fetch_value(self, query: Executable) -> Any | None:
        """Return the first column of the first row; None if there is none. Raises StoreError."""
        return await self.read_or_default(lambda connection: connection.execute(query).scalar(), None)

    async def execute(self, statement: Executable) -> int:
        """Run a statement in a transaction, and return the number of changed rows.

        Raises StoreError, also for a value that cannot be stored.
        """
        return await self.write(lambda connection: connection.execute(statement).rowcount)

    async def execute_by_key(self, statement: Executable) -> int:
        """Run a statement for a key from outside; return the number of changed rows. Raises StoreError."""
        return await self.write_or_default(lambda connection: connection.execute(statement).rowcount, 0)

    async def close(self) -> None:
        """Wait for running work, then close every connection.

        Threads cannot be cancelled. If work still runs after the timeout, its sockets are shut down, which
        makes the blocked threads fail and end.
        """
        self._closed = True
        shutdown = asyncio.ensure_future(asyncio.to_thread(self._shut_down))
        await asyncio.wait([shutdown], timeout=self.engines.limits.close)
        if not shutdown.done():
            _log.warning(
                "the database %s is not responding; closing its connections", self.engines.display_name
            )
            self._is_aborted = True
            self.engines.abort_connections()
        await shutdown

    def _shut_down(self) -> None:
        self._read_pool.shutdown()
        self._write_pool.shutdown()
        self.engines.dispose()

    async def _run_in_pool(
        self, pool: ThreadPoolExecutor, engine: Engine | None, work: DatabaseWork[_T]
    ) -> _T:
        """Run work in a thread, with a connection of ``engine``, or in a transaction if that is None."""
        if self._closed:
            raise StoreClosed()
        # A thread cannot be interrupted. If the caller is cancelled, work that has started goes on to its
        # commit or rollback; only queued work is dropped.
        submitted = pool.submit(self._run, engine, work)
        limit, expired = self.engines.limits.queue, False

        def cancel_if_queued() -> None:
            nonlocal expired
            # A queued job can be cancelled. A running one cannot, but its statements have time limits.
            expired = submitted.cancel()

        timer = asyncio.get_running_loop().call_later(limit, cancel_if_queued)
        try:
            return await asyncio.wrap_future(submitted)
        except asyncio.CancelledError:
            if not expired:
                raise
            raise DatabaseUnavailable(
                f"no connection to the database {self.engines.display_name} became free within {limit:g} s",
                hint="the database is slow or overloaded: check its running queries",
            ) from None
        finally:
            timer.cancel()

    def _run_transaction(self, work: DatabaseWork[_T]) -> _T:
        with self.engines.writer.connect() as connection:
            # ``info`` belongs to the pooled connection; a rolled-back transaction may have left signals in
            # it.
            connection.info.pop(_SIGNALS_INFO_KEY, None)
            transaction = connection.begin()
            try:
                result = work(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                # The connection may have been lost before or after the server committed. Repeating the work
                # could apply it twice, so this error is not retryable.
                raise self._unavailable_error(
                    error, "it is not known whether the last change was saved"
                ) from error
            # Only after the commit: a change that is rolled back must not be announced, and a listener that
            # reads at once must see the new rows.
            if (signals := connection.info.pop(_SIGNALS_INFO_KEY, None)) and self.on_commit is not None:
                self.on_commit(signals)
            return result

    def _run(self, engine: Engine | None, work: DatabaseWork[_T], *, is_probe: bool = False) -> _T:
        """Run work, again after an error that may be temporary. Called in a worker thread."""
        # Queued work gets here when the close has given up on the database. It must not open new
        # connections.
        if self._is_aborted:
            raise StoreClosed()
        if self._breaker.is_open and not is_probe:
            return self._run_with_breaker(engine, work)
        # Open connections would keep writing to a file that is gone, and new ones read another file.
        if self._file_status is not None:
            try:
                is_same = os.path.samestat(os.stat(self.engines.display_name), self._file_status)
            except OSError:
                is_same = False
            if not is_same:
                raise DatabaseUnavailable(
                    f"the database {self.engines.display_name} was removed or replaced while it was in use",
                    hint="restart Toolyard, after restoring the file if it is missing",
                )
        # A retry follows at once: either the pool opens a new connection, or PostgreSQL has just ended the
        # transaction as the victim of a deadlock and its rival is done.
        attempts_left = _MAX_ATTEMPTS
        while True:
            attempts_left -= 1
            try:
                if engine is None:
                    return self._run_transaction(work)
                with engine.connect() as connection:
                    return work(connection)
            except DBAPIError as error:
                if (constraint := dialects.violated_constraint(error)) is not None:
                    raise Conflict(_CONFLICT_MESSAGES[constraint], hint="reload and try again") from error
                if not attempts_left or self._is_aborted or not dialects.is_retryable(error):
                    raise self._unavailable_error(error) from error
            except UnicodeEncodeError:
                raise Unstorable(
                    "the text contains a lone surrogate (half a character)", hint="remove it"
                ) from None
            except StatementError as error:
                # SQLAlchemy wraps errors raised while binding parameters, such as Unstorable of a column
                # type.
                if isinstance(error.orig, ToolyardError):
                    raise error.orig from None
                raise StoreError(f"a value cannot be stored: {error.orig}") from error
            except (SQLAlchemyError, sqlite3.Error) as error:
                raise self._unavailable_error(error) from error

    def _run_with_breaker(self, engine: Engine | None, work: DatabaseWork[_T]) -> _T:
        with self._breaker.attempt() as allowed:
            if not allowed:
                raise DatabaseUnavailable(
                    f"the database {self.engines.display_name} is not responding; Toolyard is trying a new "
                    "connection",
                    hint="check that PostgreSQL is running and not frozen, then try again",
                )
            return self._run(engine, work, is_probe=True)

    def _unavailable_error(self, error: Exception, detail: str = "") -> DatabaseUnavailable:
        if dialects.is_timeout_error(error):
            self._breaker.trip()
        return unavailable_error(self.engines, error, detail)


def _read_data_version(connection: Connection) -> tuple[object, int]:
    # Bypass SQLAlchemy, which would begin a transaction and so wait for the write lock. The connection is
    # part of the value, since the version is only comparable on the same connection.
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    return driver, driver.execute("PRAGMA data_version").fetchone()[0]


def unavailable_error(engines: dialects.Engines, error: Exception, detail: str = "") -> DatabaseUnavailable:
    """Build DatabaseUnavailable from a driver error: its text on one line, with a hint."""
    description = " ".join(str(getattr(error, "orig", None) or error).split())
    return DatabaseUnavailable(
        f"the database {engines.display_name} cannot be used: {description}{f'; {detail}' if detail else ''}",
        hint=dialects.hint_for(engines, error),
    )


class Repository:
    """Access to the rows of some tables.

    A method with the decorator ``transaction`` is a function for a worker thread: it gets the connection of
    its transaction as the first argument. Callers await it and pass the others.
    """

    def __init__(self, executor: DatabaseExecutor) -> None:
        self._executor = executor

    def write(self, work: Callable[[Connection], _T]) -> Awaitable[_T]:
        """Run a function in a transaction, see ``DatabaseExecutor.write``."""
        return self._executor.write(work)

    def write_or_default(self, work: Callable[[Connection], _T], default: _D) -> Awaitable[_T | _D]:
        """Run a function in a transaction, see ``DatabaseExecutor.write_or_default``."""
        return self._executor.write_or_default(work, default)


_R = TypeVar("_R", bound=Repository)
_P = ParamSpec("_P")

_Work: TypeAlias = Callable[Concatenate[_R, Connection, _P], _T]
_Method: TypeAlias = "Callable[Concatenate[_R, _P], CoroutineType[Any, Any, _T]]"


def transaction(work: _Work[_R, _P, _T]) -> _Method[_R, _P, _T]:
    """Run a method in a transaction, see ``DatabaseExecutor.write``.

    It may be repeated, so it must have no effects outside the database.
    """

    @wraps(work)
    async def run(self: _R, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.write(lambda connection: work(self, connection, *args, **kwargs))

    return run


def transaction_by_key(default: _D) -> Callable[[_Work[_R, _P, _T]], _Method[_R, _P, _T | _D]]:
    """Run a method for a key from outside in a transaction; see ``DatabaseExecutor.write_or_default``."""

    def decorate(work: _Work[_R, _P, _T]) -> _Method[_R, _P, _T | _D]:
        @wraps(work)
        async def run(self: _R, *args: _P.args, **kwargs: _P.kwargs) -> _T | _D:
            return await self.write_or_default(
                lambda connection: work(self, connection, *args, **kwargs), default
            )

        return run

    return decorate
