"""Differences between SQLite and PostgreSQL: connections, bulk statements and error codes."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from collections.abc import Callable, Generator, Mapping, MutableSet, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from weakref import WeakSet

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Table,
    TextClause,
    bindparam,
    create_engine,
    event,
    make_url,
    text,
    update,
)
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from toolyard.store.errors import DatabaseUnusable

__all__ = [
    "POSTGRESQL_POOL_SIZE",
    "Engines",
    "TimeLimits",
    "build_insert",
    "build_postgresql_session_setup",
    "create_postgresql_engines",
    "create_sqlite_engines",
    "enable_wal",
    "hint_for",
    "insert_if_absent",
    "insert_many",
    "is_retryable",
    "is_timeout_error",
    "is_wal_enabled",
    "parse_postgresql_url",
    "raise_if_violated",
    "schema_change_transaction",
    "update_many",
    "upsert",
    "violated_constraint",
]


Constraint: TypeAlias = Literal["unique", "reference"]

_SQLITE_READ_CONNECTIONS = 4
POSTGRESQL_POOL_SIZE = 8
"""Connections of one process, each with a worker thread."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds after which a wait for the database ends with DatabaseUnavailable."""

    statement: float = 30.0
    """For one PostgreSQL statement outside of migrations; enforced by the server."""
    answer: float = 35.0
    """For one PostgreSQL statement, enforced by us; longer than ``statement``."""
    queue: float = 30.0
    """For a free connection."""
    heartbeat: float = 15.0
    """Between two checks that the connection receiving notifications still works."""
    busy: float = 30.0
    """For SQLite's write lock while another process holds it."""
    lock: float = 120.0
    """For the refresh of a token by another process, which calls one server, with shorter timeouts."""
    close: float = 10.0
    """For running work when the database is closed."""
    migration: float = 3600.0
    """For one statement of a migration, including the wait for a migration by another replica."""


@dataclass(frozen=True, slots=True)
class Engines:
    """SQLAlchemy engines of one database: ``reader`` commits each statement, ``writer`` runs transactions.

    ``reader_connections`` and ``writer_connections`` are the sizes of their pools, and so the number of
    useful threads. If ``writer_connections`` is None, both engines share one pool.
    """

    kind: Literal["sqlite", "postgresql"]
    reader: Engine
    writer: Engine
    reader_connections: int
    writer_connections: int | None
    display_name: str
    """Name of the database for messages, without a password."""
    connect_args: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Parameters of psycopg for a connection outside the pool."""
    open_connections: MutableSet[Any] = field(default_factory=WeakSet[Any], repr=False)
    """Open psycopg connections of the pool."""
    limits: TimeLimits = TimeLimits()
    on_dispose: Callable[[], None] = lambda: None

    def dispose(self) -> None:
        """Close every connection."""
        self.reader.dispose()
        self.writer.dispose()
        self.on_dispose()

    def abort_connections(self) -> None:
        """Shut down the sockets of PostgreSQL connections, so that threads blocked on them get an error.

        The descriptor is duplicated because closing the socket object would close psycopg's descriptor, which
        a thread may still be using.
        """
        for connection in list(self.open_connections):
            with (
                contextlib.suppress(OSError, connection.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as duplicate,
            ):
                duplicate.shutdown(socket.SHUT_RDWR)


# SQLite.


def create_sqlite_engines(file: Path, limits: TimeLimits = TimeLimits()) -> Engines:  # noqa: B008 - frozen
    """Create engines for a file, with one writer, since SQLite allows only one. Opens no connection."""
    url = URL.create("sqlite", database=str(file))
    driver_args: dict[str, Any] = {"timeout": limits.busy, "check_same_thread": False}
    writer = create_engine(url, pool_size=1, max_overflow=0, connect_args=driver_args, hide_parameters=True)
    reader = create_engine(
        url,
        pool_size=_SQLITE_READ_CONNECTIONS,
        max_overflow=0,
        connect_args=driver_args,
        hide_parameters=True,
        isolation_level="AUTOCOMMIT",
    )
    event.listen(writer, "connect", _prepare_writer)
    event.listen(writer, "begin", _begin_immediate)
    event.listen(reader, "connect", _prepare_reader)
    return Engines("sqlite", reader, writer, _SQLITE_READ_CONNECTIONS, 1, str(file), limits=limits)


def _prepare_writer(connection: sqlite3.Connection, _record: object) -> None:
    # Turn off the implicit BEGIN of sqlite3: it comes only with the first write, and never before DDL.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # A commit that has returned is on disk, even after a power failure.
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    # A write on a reader's connection would bypass the queue of the single writer; this makes it an error.
    connection.execute("PRAGMA query_only = ON")


def _begin_immediate(connection: Connection) -> None:
    # Take the write lock at the start. A transaction that begins as a reader and writes later fails with
    # SQLITE_BUSY at once if another process wrote in between; the busy timeout does not apply to that case.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def schema_change_transaction(engines: Engines) -> Generator[Connection]:
    """Run a transaction that may change tables.

    Many changes to an SQLite table need a new table. With foreign keys enabled, dropping the old one would
    delete every row that refers to it, so they are disabled meanwhile and checked before the commit.
    """
    with engines.writer.connect() as connection:
        if engines.kind == "postgresql":
            with connection.begin():
                yield connection
            return
        driver = cast(sqlite3.Connection, connection.connection.driver_connection)
        driver.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                yield connection
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchone()
                if broken is not None:
                    raise DatabaseUnusable(f"rows of table {broken[0]} refer to rows that do not exist")
        finally:
            driver.execute("PRAGMA foreign_keys = ON")


def enable_wal(engines: Engines) -> None:
    """Set SQLite's write-ahead log, which lets readers work while a transaction is open.

    The mode is stored in the file. Call it while holding the lock of the data directory, since only one
    process at a time can change it.
    """
    connection = engines.writer.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def is_wal_enabled(connection: Connection) -> bool:
    """Return whether the write-ahead log is on. Copies made by ``VACUUM INTO`` or from a dump lack it."""
    if connection.dialect.name == "postgresql":
        return True
    return connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


# PostgreSQL.


def parse_postgresql_url(text: str) -> URL:
    """Return the URL with psycopg as its driver. Raises DatabaseUnusable, whose message has no password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable("the database URL is not valid", hint=_URL_HINT) from None
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise DatabaseUnusable(f"database type '{url.drivername}' is not supported", hint=_URL_HINT)
    if "@" in f"{url.host}{url.database}":
        # The parser takes the rest of such a password for the host, which messages show.
        hint = "in the password, write %40 instead of @ and %25 instead of %"
        raise DatabaseUnusable("the database URL has more than one @", hint=hint)
    return url.set(drivername="postgresql+psycopg")


_URL_HINT = "use postgresql://user:password@host/database, or leave it unset to use SQLite"


def create_postgresql_engines(url: URL, limits: TimeLimits = TimeLimits()) -> Engines:  # noqa: B008 - frozen
    """Create engines that share one connection pool. Opens no connection.

    Raises DatabaseUnusable if the driver is not installed.
    """
    try:
        from toolyard.store.sql.postgres_connections import TimedConnection  # loads psycopg
    except ImportError:
        message = "support for PostgreSQL is not installed: psycopg is missing"
        raise DatabaseUnusable(message, hint="pip install 'toolyard[postgres]'") from None

    defaults: dict[str, Any] = {
        # The driver waits two seconds at least.
        "connect_timeout": str(ceil(min(10.0, limits.answer or 10.0))),
        "application_name": "toolyard",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "4",
        # Keepalives are sent only on an idle connection. This limits the wait for the acknowledgement of
        # data.
        "tcp_user_timeout": "30000",
    }
    driver_args = {name: value for name, value in defaults.items() if name not in url.query}
    engine = create_engine(
        url,
        pool_size=POSTGRESQL_POOL_SIZE,
        max_overflow=0,
        connect_args=driver_args,
        hide_parameters=True,
    )
    open_connections = WeakSet[Any]()

    def connect(_dialect: object, _record: object, _arguments: object, params: dict[str, Any]) -> Any:
        connection = TimedConnection.open(params, limits.answer)
        open_connections.add(connection)
        return connection

    session_setup = build_postgresql_session_setup(limits)

    def prepare_session(connection: Any, _record: object) -> None:
        # Without a transaction, or a rollback of the first one would undo the settings.
        connection.autocommit = True
        connection.execute(session_setup)
        connection.autocommit = False

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", prepare_session)
    display_name = url.set(password=None, drivername="postgresql", query={}).render_as_string()
    reader = engine.execution_options(isolation_level="AUTOCOMMIT")
    driver_args = {**engine.dialect.create_connect_args(engine.url)[1], **driver_args}
    return Engines(
        "postgresql",
        reader,
        engine,
        POSTGRESQL_POOL_SIZE,
        None,
        display_name,
        driver_args,
        open_connections,
        limits,
    )


def build_postgresql_session_setup(limits: TimeLimits) -> bytes:
    """Return the first query on every PostgreSQL connection.

    These are not connection options, since poolers refuse those.
    """
    query = (
        f"SELECT set_config('statement_timeout', '{limits.statement * 1000:.0f}ms', false),"
        " set_config('idle_in_transaction_session_timeout', '60s', false),"
        # A client that vanished without closing its connection loses its locks after half a minute instead of
        # the two hours that kernels use by default.
        " set_config('tcp_keepalives_idle', '10', false),"
        " set_config('tcp_keepalives_interval', '5', false),"
        " set_config('tcp_keepalives_count', '4', false)"
    )
    return query.encode()


# Statements and errors.


def build_insert(dialect_name: str, table: Table) -> SqliteInsert:
    """Return an insert with the ON CONFLICT methods, which both dialects share."""
    if dialect_name == "sqlite":
        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert  # only needed with PostgreSQL

    return cast(SqliteInsert, postgresql_insert(table))


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row. Return False if a row with the same unique key exists."""
    statement = build_insert(connection.dialect.name, table).values(**values).on_conflict_do_nothing()
    return connection.execute(statement.returning(*table.primary_key)).first() is not None


def upsert(
    connection: Connection,
    table: Table,
    values: Mapping[str, Any],
    *,
    key: Sequence[str] = ("digest",),
    where: ColumnElement[bool] | None = None,
) -> None:
    """Insert a row, or update the row with the same key if it fulfils a condition."""
    statement = build_insert(connection.dialect.name, table).values(**values)
    updated = {name: value for name, value in values.items() if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=updated, where=where))


@contextmanager
def raise_if_violated(constraint: Constraint, error: Exception) -> Generator[None]:
    """Raise an error of the domain in place of a violated constraint.

    The constraint decides, and not a query before it, which would race with other writers.
    """
    try:
        yield
    except IntegrityError as violation:
        if violated_constraint(violation) != constraint:
            raise
        raise error from None


def violated_constraint(error: DBAPIError) -> Constraint | None:
    """Return the kind of constraint that a statement violated; None for any other error."""
    code = _error_code(error)
    if code in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, "23505"):
        return "unique"
    return "reference" if code in (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, "23503") else None


def is_retryable(error: DBAPIError) -> bool:
    """Return whether the transaction had no effect and may succeed if repeated at once.

    That holds for a connection lost before the commit, a serialization failure (40001) and a deadlock
    (40P01). A timeout is not repeated: each attempt would block a thread for the whole limit again.
    """
    if is_timeout_error(error):
        return False
    return error.connection_invalidated or _error_code(error) in ("40001", "40P01")


def is_timeout_error(error: Exception) -> bool:
    """Return whether PostgreSQL did not answer a connection attempt or a statement in time."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    from toolyard.store.sql.postgres_connections import is_timeout  # loads psycopg

    return is_timeout(error.orig)


def _error_code(error: Exception) -> int | str | None:
    """Return SQLite's extended error code or PostgreSQL's SQLSTATE."""
    orig = getattr(error, "orig", None) or error
    return getattr(orig, "sqlite_errorcode", None) or getattr(orig, "sqlstate", None)


_DAMAGED_FILE_HINT = "the file is damaged: restore a backup, or move it away to start with an empty database"
_SQLITE_HINTS = {
    sqlite3.SQLITE_BUSY: "another process has locked the file: stop it if it hangs, or wait for it",
    sqlite3.SQLITE_FULL: "free some disk space",
    sqlite3.SQLITE_NOTADB: _DAMAGED_FILE_HINT,
    sqlite3.SQLITE_CORRUPT: _DAMAGED_FILE_HINT,
}


def hint_for(engines: Engines, error: Exception) -> str:
    """Return a hint on how to fix an unavailable database."""
    if engines.kind == "postgresql":
        return "check that PostgreSQL is running, has free connections, and grants this user access"
    code = _error_code(error)
    hint = _SQLITE_HINTS.get(code & 0xFF) if isinstance(code, int) else None
    return hint or "check that the user running Toolyard can write to the file and its directory"


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns.

    PostgreSQL gets one statement with an array for each column, which saves a round trip for each row.
    """
    if connection.dialect.name == "sqlite":
        connection.execute(table.insert(), rows)
    else:
        names = tuple(rows[0])
        connection.execute(
            _insert_from_arrays(table, names), {name: [row[name] for row in rows] for name in names}
        )


def update_many(connection: Connection, table: Table, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update the row with each ``key``. All rows have the same columns."""
    names = tuple(rows[0])
    if connection.dialect.name == "sqlite":
        statement = update(table).where(table.c[key] == bindparam(f"to_{key}"))
        statement = statement.values({name: bindparam(f"to_{name}") for name in names if name != key})
        connection.execute(statement, [{f"to_{name}": row[name] for name in names} for row in rows])
    else:
        values = {name: [row[name] for row in rows] for name in names}
        connection.execute(_update_from_arrays(table, key, names), values)


@cache
def _insert_from_arrays(table: Table, names: tuple[str, ...]) -> TextClause:
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) SELECT * FROM {_unnest_expression(table, names)}"
    )


@cache
def _update_from_arrays(table: Table, key: str, names: tuple[str, ...]) -> TextClause:
    changes = ", ".join(f"{name} = new_rows.{name}" for name in names if name != key)
    new_rows = f"{_unnest_expression(table, names)} AS new_rows({', '.join(names)})"
    return text(
        f"UPDATE {table.name} SET {changes} FROM {new_rows} WHERE {table.name}.{key} = new_rows.{key}"
    )


def _unnest_expression(table: Table, names: tuple[str, ...]) -> str:
    """Return an SQL expression for rows passed as one array for each column."""
    from sqlalchemy.dialects.postgresql import dialect  # only needed with PostgreSQL

    arrays = [f"CAST(:{name} AS {table.c[name].type.compile(dialect())}[])" for name in names]
    return f"unnest({', '.join(arrays)})"
