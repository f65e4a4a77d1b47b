"""From a folder or a URL to a database: keys, files, tables, and every way in which that can go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import cancel

from toolyard.store import Database
from toolyard.store.errors import (
    DatabaseNewer,
    DatabaseUnavailable,
    DatabaseUnusable,
    KeyMissing,
    KeyUnusable,
    StoreClosed,
    WrongKey,
)
from toolyard.store.sql import migrate
from toolyard.types.account import Role

KEY = "a key for tests, long enough"
PASSWORD = "hunter2-the-password"


async def open_close(data: Path, **options: Any) -> None:
    await (await Database.open(data, **{"url": None, "secret_key": None, **options})).close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# Files.


async def test_everything_is_private_from_the_start(tmp_path: Path) -> None:
    data = tmp_path / "deep/data"
    before = os.umask(0)
    try:
        database = await Database.open(data, url=None, secret_key=None)
        await database.accounts.add_user("Ann", Role.USER)
        async with database.auth.refresh_lock("k"):
            files_by_name = {path.relative_to(data).parts[0]: path for path in data.rglob("*")}
            assert {"toolyard.db", "toolyard.db-wal", "toolyard.db-shm", "secret.key", "locks"} <= set(
                files_by_name
            )
            for path in data.rglob("*"):
                assert mode(path) == (0o700 if path.is_dir() else 0o600), path
        await database.close()
    finally:
        os.umask(before)
    assert mode(data) == 0o700


async def test_a_database_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    await open_close(tmp_path)
    (tmp_path / "toolyard.db").chmod(0o644)
    await open_close(tmp_path)
    assert mode(tmp_path / "toolyard.db") == 0o600


async def test_nothing_is_left_beside_the_database_and_its_key(tmp_path: Path) -> None:
    await open_close(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"toolyard.db", "secret.key"}


async def test_acknowledged_writes_are_on_the_disk(tmp_path: Path) -> None:
    database = await Database.open(tmp_path, url=None, secret_key=None)
    settings = await database.executor.write(
        lambda c: [
            c.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    )
    await database.close()
    assert settings == ["wal", 2, 1, 30_000]


async def test_a_copy_that_does_not_write_ahead_does_so_again(tmp_path: Path) -> None:
    await open_close(tmp_path / "data", secret_key=KEY)
    (tmp_path / "copy").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "data/toolyard.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(tmp_path / "copy/toolyard.db"),))
    await open_close(tmp_path / "copy", secret_key=KEY)
    with contextlib.closing(sqlite3.connect(tmp_path / "copy/toolyard.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnusable, match="file/data cannot be used") as exc_info:
        await open_close(tmp_path / "file/data")
    assert "TOOLYARD_DATA_DIR" in str(exc_info.value.hint)


async def test_a_folder_in_which_nothing_more_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "toolyard.db.lock").mkdir()
    with pytest.raises(DatabaseUnusable, match=f"{tmp_path} cannot be used") as exc_info:
        await open_close(tmp_path)
    assert (exc_info.value.exit_code, bool(exc_info.value.hint)) == (2, True)


async def test_a_file_that_is_not_a_database_is_left_alone(tmp_path: Path) -> None:
    words = b"this is somebody's diary, and no database at all\n" * 100
    (tmp_path / "toolyard.db").write_bytes(words)
    with pytest.raises(DatabaseUnavailable, match="file is not a database") as exc_info:
        await open_close(tmp_path)
    assert "restore a backup" in str(exc_info.value.hint)
    assert (tmp_path / "toolyard.db").read_bytes() == words


# Keys.


async def test_the_key_file_is_made_once_and_used_again(tmp_path: Path) -> None:
    await open_close(tmp_path)
    text = (tmp_path / "secret.key").read_text()
    assert len(text.strip()) >= 40
    await open_close(tmp_path)
    assert (tmp_path / "secret.key").read_text() == text
    # Its text does as a secret key too, for whoever moves on.
    await open_close(tmp_path, secret_key=text.strip())


async def test_a_given_key_makes_no_key_file(tmp_path: Path) -> None:
    await open_close(tmp_path, secret_key=KEY)
    assert not (tmp_path / "secret.key").exists()


async def test_another_key_is_refused_before_anything_is_written(
    database: Database, database_url: str | None, tmp_path: Path
) -> None:
    await database.accounts.add_user("Ann", Role.USER)
    before = sorted(path.name for path in (tmp_path / "data").glob("*"))
    with pytest.raises(WrongKey, match="another secret key") as exc_info:
        await open_close(tmp_path / "data", url=database_url, secret_key="another key, long enough")
    assert "TOOLYARD_SECRET_KEY" in str(exc_info.value.hint)
    assert "another key, long" not in str(exc_info.value)
    assert sorted(path.name for path in (tmp_path / "data").glob("*")) == before
    await open_close(tmp_path / "data", url=database_url, secret_key=KEY)


async def test_a_given_key_does_not_replace_the_key_file(tmp_path: Path) -> None:
    await open_close(tmp_path)
    with pytest.raises(WrongKey, match="another secret key") as exc_info:
        await open_close(tmp_path, secret_key=KEY)
    assert "unset it to use the key file" in str(exc_info.value.hint)


@pytest.mark.parametrize("made_with", [None, KEY])
async def test_a_lost_key_is_not_replaced_by_a_new_one(tmp_path: Path, made_with: str | None) -> None:
    await open_close(tmp_path, secret_key=made_with)
    (tmp_path / "secret.key").unlink(missing_ok=True)
    with pytest.raises(KeyMissing, match="its key file") as exc_info:
        await open_close(tmp_path)
    assert "backup" in str(exc_info.value.hint)
    assert not (tmp_path / "secret.key").exists()


@pytest.mark.parametrize("text", [b"", b"short\n", b"\xff\xfe" * 30])
async def test_a_broken_key_file_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "secret.key").write_bytes(text)
    (tmp_path / "secret.key").chmod(0o600)
    with pytest.raises(KeyUnusable) as exc_info:
        await open_close(tmp_path)
    assert exc_info.value.hint
    assert (tmp_path / "secret.key").read_bytes() == text


async def test_a_key_file_that_others_can_read_is_taken_away_from_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await open_close(tmp_path)
    (tmp_path / "secret.key").chmod(0o644)
    await open_close(tmp_path)
    assert mode(tmp_path / "secret.key") == 0o600
    assert "could be read by others (mode 644)" in caplog.text


async def test_a_key_file_that_cannot_be_made_private_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_close(tmp_path)
    (tmp_path / "secret.key").chmod(0o640)

    def refuse_chmod(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse_chmod)
    with pytest.raises(KeyUnusable, match="can read the key file") as exc_info:
        await open_close(tmp_path)
    assert "chmod 600" in str(exc_info.value.hint)


async def test_postgresql_needs_a_key(postgres_url: str, tmp_path: Path) -> None:
    with pytest.raises(KeyMissing, match="no secret key") as exc_info:
        await open_close(tmp_path, url=postgres_url)
    assert "TOOLYARD_SECRET_KEY" in str(exc_info.value.hint)
    with pytest.raises(KeyUnusable, match="has 5 characters"):
        await open_close(tmp_path, url=postgres_url, secret_key="short")
    assert list(tmp_path.iterdir()) == []


# URLs.


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
async def test_every_spelling_of_postgresql_is_understood(
    postgres_url: str, tmp_path: Path, scheme: str
) -> None:
    url = postgres_url.replace("postgresql://", f"{scheme}://")
    database = await Database.open(tmp_path, url=url, secret_key=KEY)
    kind = database.executor.engines.kind
    await database.close()
    assert kind == "postgresql"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://user:{PASSWORD}@host/db",
        "sqlite:////tmp/x.db",
        f"postgresql+asyncpg://user:{PASSWORD}@host/db",
        f"{PASSWORD}",
        "",
        f"postgresql://user:{PASSWORD}@host:notaport/db",
        f"://{PASSWORD}",
    ],
)
async def test_other_urls_are_refused_without_their_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(DatabaseUnusable) as exc_info:
        await open_close(tmp_path, url=url, secret_key=KEY)
    assert "postgresql://" in str(exc_info.value.hint)
    assert PASSWORD not in _everything(exc_info.value)


@pytest.mark.parametrize("password", ["one@two", "one@two/three"])
async def test_a_password_with_an_at_sign_is_not_taken_for_a_host(tmp_path: Path, password: str) -> None:
    with pytest.raises(DatabaseUnusable, match="more than one @") as exc_info:
        await open_close(tmp_path, url=f"postgresql://ann:{password}@127.0.0.1/db", secret_key=KEY)
    assert "%40" in str(exc_info.value.hint)
    assert "two" not in _everything(exc_info.value)


async def test_a_database_that_is_not_there_is_said_without_the_password(
    postgres_url: str, tmp_path: Path
) -> None:
    with socket.socket() as closed_socket:
        closed_socket.bind(("127.0.0.1", 0))
        port = closed_socket.getsockname()[1]
        with pytest.raises(DatabaseUnavailable, match="refused") as exc_info:
            url = f"postgresql://ann:{PASSWORD}@127.0.0.1:{port}/db?application_name=x&password={PASSWORD}"
            await open_close(tmp_path, url=url, secret_key=KEY)
    assert f"127.0.0.1:{port}/db" in exc_info.value.cause
    assert "check that PostgreSQL is running" in str(exc_info.value.hint)
    assert PASSWORD not in _everything(exc_info.value)

    missing = postgres_url.replace("postgres:@/test_", f"postgres:{PASSWORD}@/missing_")
    with pytest.raises(DatabaseUnavailable, match="does not exist") as exc_info:
        await open_close(tmp_path, url=missing, secret_key=KEY)
    assert PASSWORD not in _everything(exc_info.value)


def _everything(error: BaseException) -> str:
    """Whatever a log could show of an error, with those that led to it."""
    import traceback

    return f"{error!r} {error} {''.join(traceback.format_exception(error))}"


async def test_a_database_that_stores_other_characters_is_refused(postgres_url: str, tmp_path: Path) -> None:
    import psycopg

    name = "latin"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'"
        )
    base, _, host = postgres_url.partition("?")
    url = f"{base.rsplit('/', 1)[0]}/{name}?{host}"
    with pytest.raises(DatabaseUnusable, match="LATIN1") as exc_info:
        await open_close(tmp_path, url=url, secret_key=KEY)
    assert "UTF8" in str(exc_info.value.hint)


# Tables.


def test_the_head_is_the_newest_script() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent.parent / "migrations"))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [migrate.HEAD]


async def test_the_scripts_make_the_tables_that_the_code_uses(database: Database) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from toolyard.store.sql.tables import metadata

    def differences(connection: Any) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    assert await database.executor.read(differences) == []


def test_a_new_file_has_the_tables_that_the_scripts_make(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, text

    def statements(name: str, make: Callable[[Any], None]) -> dict[str, list[str]]:
        engine = create_engine(f"sqlite:///{tmp_path}/{name}.db")
        with engine.begin() as connection:
            make(connection)
            rows = connection.execute(text("SELECT name, sql FROM sqlite_master")).all()
            version = migrate.read_schema_version(connection)
        engine.dispose()
        # The order of columns and constraints differs, and scripts need defaults to add columns to rows.
        words = {row[0]: re.sub(r" DEFAULT \S+", "", row[1] or "") for row in rows}
        return {
            "version": [str(version)],
            **{key: sorted(re.findall(r"[^\s,()]+", sql)) for key, sql in words.items()},
        }

    by_scripts = statements("scripts", lambda c: migrate.upgrade_schema(c, None))
    assert statements("new", lambda c: migrate.migrate(c, 10.0)) == by_scripts
    assert len(by_scripts) > 70


async def test_columns_that_differ_are_noticed(database: Database) -> None:
    """The test above can fail."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import text

    from toolyard.store.sql.tables import metadata

    def change(connection: Any) -> None:
        connection.execute(text("ALTER TABLE users ADD COLUMN more INTEGER"))
        connection.execute(text("DROP INDEX ix_sessions_user_id"))

    await database.executor.write(change)
    differences = await database.executor.read(
        lambda c: compare_metadata(MigrationContext.configure(c), metadata)
    )
    assert {difference[0] for difference in differences} == {"remove_column", "add_index"}


async def test_a_database_of_a_later_version_is_refused_and_left_alone(
    database: Database, database_url: str | None, tmp_path: Path
) -> None:
    from sqlalchemy import text

    await database.executor.write(
        lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    )
    with pytest.raises(DatabaseNewer, match=rf"later version of Toolyard .*9999.*{migrate.HEAD}") as exc_info:
        await open_close(tmp_path / "data", url=database_url, secret_key=KEY)
    assert "update Toolyard" in str(exc_info.value.hint)
    query = text("SELECT version_num FROM alembic_version")
    assert await database.executor.read(lambda c: c.execute(query).scalar()) == "9999"


async def test_a_database_of_another_program_is_refused(database_url: str | None, tmp_path: Path) -> None:
    import sqlite3

    import psycopg

    other = "CREATE TABLE users (id INTEGER, shoe_size INTEGER)"
    if database_url is None:
        connection = sqlite3.connect(tmp_path / "toolyard.db")
        connection.execute(other)
        connection.close()
    else:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(other)
    with pytest.raises(DatabaseUnusable, match="tables of another program"):
        await open_close(tmp_path, url=database_url, secret_key=KEY)


async def test_a_failed_migration_leaves_nothing(
    database_url: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or out of disk, half way: the next one starts at the beginning."""
    from toolyard.store.sql import open

    def broken(connection: Any, seconds: float) -> None:
        migrate.migrate(connection, seconds)
        raise DatabaseUnavailable("the disk is full")

    monkeypatch.setattr(open, "migrate", broken)
    with pytest.raises(DatabaseUnavailable, match="disk is full"):
        await open_close(tmp_path, url=database_url, secret_key=KEY)
    monkeypatch.undo()
    database = await Database.open(tmp_path, url=database_url, secret_key=KEY)
    await database.accounts.add_user("Ann", Role.USER)
    await database.close()


def test_a_new_file_and_one_that_is_up_to_date_need_neither_alembic_nor_the_orm(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from pathlib import Path
from toolyard.store import Database
async def main():
    await (await Database.open(Path({str(tmp_path)!r}), url=None, secret_key=None)).close()
asyncio.run(main())
print([name for name in ("alembic", "sqlalchemy.orm", "psycopg", "greenlet") if name in sys.modules])
"""
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first.strip() == second.strip() == "[]"


def test_the_errors_can_be_imported_without_sqlalchemy() -> None:
    code = "import sys, toolyard.store, toolyard.store.errors; print('sqlalchemy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


# Closing.


async def test_work_that_was_begun_is_finished_by_closing(
    database: Database, reopen: Callable[..., Any]
) -> None:
    adding = [asyncio.create_task(database.accounts.add_user(f"user {n}", Role.USER)) for n in range(50)]
    await asyncio.sleep(0)
    await database.close()
    assert len(await asyncio.gather(*adding)) == 50
    assert len(await (await reopen()).accounts.list_users()) == 50


async def test_after_closing_everything_says_so(database: Database) -> None:
    await database.ping()
    await database.close()
    await database.close()
    for work in (database.ping, database.accounts.list_users, lambda: database.auth.get_grant("k")):
        with pytest.raises(StoreClosed, match="was closed"):
            await work()


async def test_abandoned_work_harms_no_other_caller(database: Database) -> None:
    """Requests are cancelled at any moment; connections must come back to the pool."""
    for number in range(60):
        task = asyncio.create_task(database.accounts.add_user(f"user {number}", Role.USER))
        await asyncio.sleep(0.0005 * (number % 10))
        await cancel(task)
    async with asyncio.timeout(30):
        await asyncio.gather(*(database.accounts.list_users() for _ in range(40)))
        last = await database.accounts.add_user("last", Role.USER)
    assert await database.accounts.get_user(last.id) == last


async def test_an_open_that_is_given_up_leaves_nothing(
    tmp_path: Path, database_url: str | None, wait_until: Callable[..., Awaitable[None]]
) -> None:
    before = asyncio.all_tasks()
    for pause in (0.0, 0.005, 0.02):
        opening = asyncio.create_task(Database.open(tmp_path, url=database_url, secret_key=KEY))
        await asyncio.sleep(pause)
        await cancel(opening)
        if not opening.cancelled():
            await opening.result().close()
    # A thread that still opens the database is waited for, and what it opened is closed.
    await wait_until(lambda: asyncio.all_tasks() <= before)
    await open_close(tmp_path, url=database_url, secret_key=KEY)
