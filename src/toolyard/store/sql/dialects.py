"""Where SQLite and PostgreSQL differ: how they are reached, and how they say what is wrong."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from collections.abc import Generator, Mapping, MutableSet, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, LiteralString, cast
from weakref import WeakSet

from sqlalchemy import (
    URL,
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
from sqlalchemy.exc import ArgumentError, DBAPIError

from toolyard.store.errors import DatabaseUnusable

__all__ = [
    "POSTGRESQL_SESSION_SETUP",
    "Engines",
    "TimeLimits",
    "build_insert",
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
    "schema_change_transaction",
    "update_many",
    "violated_constraint",
]


_BUSY_TIMEOUT_SECONDS = 30
_SQLITE_READ_CONNECTIONS = 4
_POSTGRESQL_POOL_SIZE = 8

POSTGRESQL_SESSION_SETUP: LiteralString = (
    "SELECT set_config('statement_timeout', '30s', false),"
    " set_config('idle_in_transaction_session_timeout', '60s', false),"
    # A peer that vanished without a word holds its locks for half a minute, not for two hours.
    " set_config('tcp_keepalives_idle', '10', false),"
    " set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '4', false)"
)
"""What every connection says first. A query, since poolers refuse it as an option of the connection."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds after which a wait for the database ends with DatabaseUnavailable."""

    answer: float = 35.0
    """For one statement of PostgreSQL; longer than the ``statement_timeout`` that the server enforces."""
    queue: float = 30.0
    """For a free connection."""
    heartbeat: float = 15.0
    """Between two checks that a connection which waits for notifications still works."""
    migration: float = 3600.0
    """For one statement that changes tables, or waits for another replica that does."""


@dataclass(frozen=True, slots=True)
class Engines:
    """``reader`` runs each statement by itself, ``writer`` runs transactions.

    ``readers`` and ``writers`` are their connections, and so the threads that are of use. No ``writers``:
    both take from the same ones.
    """

    kind: Literal["sqlite", "postgresql"]
    reader: Engine
    writer: Engine
    reader_connections: int
    writer_connections: int | None
    display_name: str
    """What to call it in a message; never a password."""
    connect_args: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What PostgreSQL's driver wants for a connection outside of the pool."""
    open_connections: MutableSet[Any] = field(default_factory=WeakSet[Any], repr=False)
    """Connections of PostgreSQL's driver that are there."""
    limits: TimeLimits = TimeLimits()

    def dispose(self) -> None:
        """Close every connection."""
        self.reader.dispose()
        self.writer.dispose()

    def abort_connections(self) -> None:
        """End PostgreSQL's connections under those who wait for an answer: they get an error."""
        for connection in list(self.open_connections):
            with (
                contextlib.suppress(OSError, connection.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as end,
            ):
                end.shutdown(socket.SHUT_RDWR)


# SQLite.


def create_sqlite_engines(file: Path, limits: TimeLimits = TimeLimits()) -> Engines:  # noqa: B008 - frozen
    """One writer, since SQLite has one, and readers that it does not disturb. Nothing is opened yet."""
    url = URL.create("sqlite", database=str(file))
    connecting: dict[str, Any] = {"timeout": _BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    writer = create_engine(url, pool_size=1, max_overflow=0, connect_args=connecting, hide_parameters=True)
    reader = create_engine(
        url,
        pool_size=_SQLITE_READ_CONNECTIONS,
        max_overflow=0,
        connect_args=connecting,
        hide_parameters=True,
        isolation_level="AUTOCOMMIT",
    )
    event.listen(writer, "connect", _prepare_writer)
    event.listen(writer, "begin", _begin_immediate)
    event.listen(reader, "connect", _prepare_reader)
    return Engines("sqlite", reader, writer, _SQLITE_READ_CONNECTIONS, 1, str(file), limits=limits)


def _prepare_writer(connection: sqlite3.Connection, _record: object) -> None:
    # The driver's own BEGIN comes too late, and not at all before a change of the schema.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # What was answered is on the disk.
    connection.execute("PRAGMA synchronous = FULL")


def _prepare_reader(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON")


def _begin_immediate(connection: Connection) -> None:
    # With the write lock from the start a transaction waits once and never fails half way.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def schema_change_transaction(engines: Engines) -> Generator[Connection]:
    """A transaction that may change tables.

    SQLite changes many things of a table by making it anew; with foreign keys on, dropping the old one would
    delete every row that refers to it. So they are off, and checked at the end.
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
                    raise DatabaseUnusable(f"rows of the table {broken[0]} refer to others that are gone")
        finally:
            driver.execute("PRAGMA foreign_keys = ON")


def enable_wal(engines: Engines) -> None:
    """Let readers and a writer work at once. The mode stays with the file; only one process at a time may
    set it."""
    connection = engines.writer.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def is_wal_enabled(connection: Connection) -> bool:
    """Whether that is so. Not where a copy was made by ``VACUUM INTO`` or from a dump."""
    if connection.dialect.name == "postgresql":
        return True
    return connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


# PostgreSQL.


def parse_postgresql_url(text: str) -> URL:
    """The URL as the driver wants it. Raises DatabaseUnusable, without repeating a password."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise DatabaseUnusable("the database URL cannot be read", hint=_URL_HINT) from None
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise DatabaseUnusable(f"databases of the kind '{url.drivername}' are not supported", hint=_URL_HINT)
    if "@" in f"{url.host}{url.database}":
        # Its end would be taken for the host, and shown.
        hint = "write %40 for an @ in the password, %25 for a %"
        raise DatabaseUnusable("the database URL has more than one @", hint=hint)
    return url.set(drivername="postgresql+psycopg")


_URL_HINT = "use postgresql://user:password@host/database, or set none to keep SQLite in the data directory"


def create_postgresql_engines(url: URL, limits: TimeLimits = TimeLimits()) -> Engines:  # noqa: B008 - frozen
    """A pool of connections for this process. Nothing is opened yet."""
    from toolyard.store.sql.postgres_connections import TimedConnection  # only with that database

    defaults: dict[str, Any] = {
        "connect_timeout": "10",
        "application_name": "toolyard",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "4",
        "tcp_user_timeout": "30000",
    }
    connecting = {name: value for name, value in defaults.items() if name not in url.query}
    engine = create_engine(
        url,
        pool_size=_POSTGRESQL_POOL_SIZE,
        max_overflow=0,
        connect_args=connecting,
        hide_parameters=True,
    )
    pooled = WeakSet[Any]()

    def connect(_dialect: object, _record: object, _arguments: object, params: dict[str, Any]) -> Any:
        connection = TimedConnection.open(params, limits.answer)
        pooled.add(connection)
        return connection

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", _prepare_session)
    where = url.set(password=None, drivername="postgresql", query={}).render_as_string()
    reader = engine.execution_options(isolation_level="AUTOCOMMIT")
    connecting = {**engine.dialect.create_connect_args(engine.url)[1], **connecting}
    return Engines(
        "postgresql", reader, engine, _POSTGRESQL_POOL_SIZE, None, where, connecting, pooled, limits
    )


def _prepare_session(connection: Any, _record: object) -> None:
    connection.autocommit = True
    connection.execute(POSTGRESQL_SESSION_SETUP)
    connection.autocommit = False


# Statements and faults.


def build_insert(connection: Connection, table: Table) -> SqliteInsert:
    """An insert that can say what to do ON CONFLICT; both dialects have the same methods for it."""
    if connection.dialect.name == "sqlite":
        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert  # only with that database

    return cast(SqliteInsert, postgresql_insert(table))


def insert_if_absent(connection: Connection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row. False: one that must not be there twice is there already."""
    adding = build_insert(connection, table).values(**values).on_conflict_do_nothing()
    return connection.execute(adding.returning(*table.primary_key)).first() is not None


def violated_constraint(error: DBAPIError) -> Literal["unique", "reference"] | None:
    """Which rule of the tables a statement broke."""
    code = _error_code(error)
    if code in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, "23505"):
        return "unique"
    return "reference" if code in (sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY, "23503") else None


def is_retryable(error: DBAPIError) -> bool:
    """Whether the same transaction, tried again at once, may well succeed: nothing of it was done."""
    if is_timeout_error(error):
        return False
    return error.connection_invalidated or _error_code(error) in ("40001", "40P01")


def is_timeout_error(error: Exception) -> bool:
    """Return whether PostgreSQL left a connection or a statement unanswered for too long."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    from toolyard.store.sql.postgres_connections import is_timeout  # only with that database

    return is_timeout(error.orig)


def _error_code(error: Exception) -> int | str | None:
    """SQLite's extended error code, or PostgreSQL's SQLSTATE."""
    orig = getattr(error, "orig", None) or error
    return getattr(orig, "sqlite_errorcode", None) or getattr(orig, "sqlstate", None)


_SQLITE_HINTS = {
    sqlite3.SQLITE_BUSY: "another process holds it: end the one that hangs, or wait for it",
    sqlite3.SQLITE_FULL: "make room on the disk",
    sqlite3.SQLITE_NOTADB: "the file is damaged: restore a backup, or move it away to begin anew",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a backup, or move it away to begin anew",
}


def hint_for(engines: Engines, error: Exception) -> str:
    """What to do when the database cannot be used."""
    if engines.kind == "postgresql":
        return "check that PostgreSQL runs there, has connections left, and lets the user use the database"
    code = _error_code(error)
    hint = _SQLITE_HINTS.get(code & 0xFF) if isinstance(code, int) else None
    return hint or "check that the file and its folder can be written by the user who runs Toolyard"


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all name the same columns."""
    if connection.dialect.name == "sqlite":
        connection.execute(table.insert(), rows)
    else:
        names = tuple(rows[0])
        connection.execute(
            _insert_from_arrays(table, names), {name: [row[name] for row in rows] for name in names}
        )


def update_many(connection: Connection, table: Table, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Change rows that a column tells apart; all name the same columns."""
    names = tuple(rows[0])
    if connection.dialect.name == "sqlite":
        changing = update(table).where(table.c[key] == bindparam(f"to_{key}"))
        changing = changing.values({name: bindparam(f"to_{name}") for name in names if name != key})
        connection.execute(changing, [{f"to_{name}": row[name] for name in names} for row in rows])
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
    changes = ", ".join(f"{name} = given.{name}" for name in names if name != key)
    given = f"{_unnest_expression(table, names)} AS given({', '.join(names)})"
    return text(f"UPDATE {table.name} SET {changes} FROM {given} WHERE {table.name}.{key} = given.{key}")


def _unnest_expression(table: Table, names: tuple[str, ...]) -> str:
    """Rows, given as an array for each column."""
    from sqlalchemy.dialects.postgresql import dialect  # only with that database

    kinds = [f"CAST(:{name} AS {table.c[name].type.compile(dialect())}[])" for name in names]
    return f"unnest({', '.join(kinds)})"
