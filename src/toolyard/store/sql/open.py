"""Opening of a database: create it if needed, verify the key, and bring the tables up to date."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from toolyard.config.file_io import ensure_private_file
from toolyard.store.errors import DatabaseOutdated, DatabaseUnusable, KeyMissing, Unreadable, WrongKey
from toolyard.store.locks import SharedFileLock, hold_file_lock
from toolyard.store.sql import dialects
from toolyard.store.sql.cipher import Cipher
from toolyard.store.sql.executor import unavailable_error
from toolyard.store.sql.key_file import DATABASE_FILE_NAME, KEY_FILE_NAME, make_key, read_key
from toolyard.store.sql.migrate import HEAD, migrate, read_schema_version
from toolyard.store.sql.tables import keys

__all__ = ["CANARY_ID", "DATABASE_FILE_NAME", "RETIRED_CANARY_ID", "check_key", "open_database"]

_LOCK_FILE_NAME = "toolyard.db.lock"
_LOCK_TIMEOUT_SECONDS = 60.0
_USE_FILE_NAME = "toolyard.db.use"
_USERS_TIMEOUT_SECONDS = 45.0
"""Time for other processes to close the database before it is migrated: a process that hands its clients over
takes half a minute."""
_READERS_TIMEOUT_SECONDS = 1.0
"""The same where others may go on: enough for those that only look whether it is outdated."""
CANARY_ID = "canary"
"""Row id and associated data of the canary, a known plaintext that reveals a wrong key."""
RETIRED_CANARY_ID = "retired"
"""Row id of the previous canary, which reveals the key that the last rotation replaced."""
_CANARY_PLAINTEXT = b"toolyard"


def open_database(
    data_dir: Path,
    url: str | None,
    secret_key: str | None,
    former_key: str | None = None,
    limits: dialects.TimeLimits = dialects.TimeLimits(),  # noqa: B008 - frozen
    *,
    migrates: bool = True,
) -> tuple[dialects.Engines, Cipher]:
    """Open a database whose key is right and whose tables are up to date.

    Unless ``migrates``, outdated tables of PostgreSQL are left as they are, and DatabaseOutdated is raised.
    It is also raised if another process uses a SQLite file with outdated tables. Blocks; call it in a worker
    thread. Raises DatabaseUnavailable, DatabaseUnusable, KeyMissing, KeyUnusable and WrongKey.
    """
    use: SharedFileLock | None = None
    if url is not None:
        engines = dialects.create_postgresql_engines(dialects.parse_postgresql_url(url), limits)
        if secret_key is None:
            raise KeyMissing(
                "no secret key is set, and a PostgreSQL database requires one",
                hint="set TOOLYARD_SECRET_KEY to the same text for every replica",
            )
        cipher = Cipher(secret_key, former_key)
    else:
        try:
            ensure_private_file(data_dir / DATABASE_FILE_NAME)
        except OSError as error:
            raise _unusable_error(data_dir, error) from None
        engines = dialects.create_sqlite_engines(data_dir / DATABASE_FILE_NAME, limits)
        use = SharedFileLock(data_dir / _USE_FILE_NAME)
        engines = replace(engines, on_dispose=use.release)
        cipher = Cipher(secret_key, former_key) if secret_key is not None else None
    try:
        return engines, _verify_and_prepare(engines, data_dir, cipher, former_key, migrates, use)
    except (SQLAlchemyError, sqlite3.Error) as error:
        engines.dispose()
        raise unavailable_error(engines, error) from error
    except OSError as error:
        engines.dispose()
        raise _unusable_error(data_dir, error) from None
    except BaseException:
        engines.dispose()
        raise


def _unusable_error(data_dir: Path, error: OSError) -> DatabaseUnusable:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    first_step = (
        "free some disk space" if full else "make the directory writable for the user running Toolyard"
    )
    return DatabaseUnusable(
        f"the data directory {data_dir} cannot be used: {error}",
        hint=f"{first_step}, or choose another directory with TOOLYARD_DATA_DIR",
    )


def _verify_and_prepare(
    engines: dialects.Engines,
    data_dir: Path,
    cipher: Cipher | None,
    former_key: str | None,
    migrates: bool,
    use: SharedFileLock | None,
) -> Cipher:
    if use is not None:
        use.acquire_shared(_LOCK_TIMEOUT_SECONDS)  # Another process may migrate it.
    with engines.reader.connect() as connection:
        version, canaries, wal_enabled = (
            read_schema_version(connection),
            _read_canaries(connection),
            dialects.is_wal_enabled(connection),
        )
    if CANARY_ID in canaries:
        # Checked before any write, migrations included: a wrong key must leave the database unchanged.
        cipher = cipher or Cipher(read_key(data_dir / KEY_FILE_NAME), former_key)
        _check_key(cipher, canaries)
        if version == HEAD and wal_enabled:
            return cipher
    # PostgreSQL needs no file lock here: the migration takes an advisory lock that all replicas share.
    if use is None:
        assert cipher is not None
        if version is not None and not migrates and version < HEAD:
            # Replicas of the earlier version may be running, and could not use the new tables.
            raise DatabaseOutdated(
                "the database has the tables of an earlier version of Toolyard "
                f"(revision {version}; this version needs {HEAD})",
                hint="run `toolyard migrate`, or update and restart the servers that use this database",
            )
        return _prepare_tables(engines, cipher)
    # Others that wait for this lock must not keep its holder from owning the database.
    use.release()
    with hold_file_lock(data_dir / _LOCK_FILE_NAME, _LOCK_TIMEOUT_SECONDS):
        # Two processes may open a new directory at once. The second gets the lock after the first has written
        # the key file, and uses that key.
        if cipher is None:
            make_key(data_dir / KEY_FILE_NAME)
            cipher = Cipher(read_key(data_dir / KEY_FILE_NAME), former_key)
        dialects.enable_wal(engines)
        with engines.reader.connect() as connection:
            version = read_schema_version(connection)
        if version is not None and version < HEAD:
            _wait_for_users(use, _USERS_TIMEOUT_SECONDS if migrates else _READERS_TIMEOUT_SECONDS)
        cipher = _prepare_tables(engines, cipher)
        use.acquire_shared(_LOCK_TIMEOUT_SECONDS)
        return cipher


def _wait_for_users(use: SharedFileLock, seconds: float) -> None:
    """Use an outdated database alone. Raises DatabaseOutdated if another process still uses its tables."""
    if use.acquire_exclusive(seconds):
        return
    raise DatabaseOutdated(
        "the database has the tables of an earlier version of Toolyard, and a process of that version "
        "uses it",
        hint="end that process first: `toolyard stop`, or stop `toolyard serve`",
    )


def _prepare_tables(engines: dialects.Engines, cipher: Cipher) -> Cipher:
    """Create or migrate the tables, and store the canary if it is missing. Raises WrongKey."""
    with dialects.schema_change_transaction(engines) as connection:
        migrate(connection, engines.limits.migration)
        dialects.insert_if_absent(
            connection, keys, {"id": CANARY_ID, "body": cipher.encrypt(_CANARY_PLAINTEXT, CANARY_ID)}
        )
        # Another replica may have stored its canary first, with another key. Raising rolls back our changes.
        check_key(connection, cipher)
    return cipher


def _read_canaries(connection: Connection) -> dict[str, bytes]:
    """Return the canaries of the current and the replaced key by id; empty in a new database."""
    if not inspect(connection).has_table("keys"):
        return {}
    return {row.id: bytes(row.body) for row in connection.execute(select(keys.c.id, keys.c.body))}


def check_key(connection: Connection, cipher: Cipher) -> None:
    """Raise WrongKey if the database has been encrypted with another key since it was opened."""
    _check_key(cipher, _read_canaries(connection))


def _check_key(cipher: Cipher, canaries: Mapping[str, bytes]) -> None:
    canary, retired = canaries[CANARY_ID], canaries.get(RETIRED_CANARY_ID)
    if (
        retired is not None
        and cipher.uses_current_key(retired, CANARY_ID)
        and not cipher.uses_current_key(canary, CANARY_ID)
    ):
        raise WrongKey(
            "the secret key of this process was replaced by `toolyard rekey`",
            hint="set TOOLYARD_SECRET_KEY to the new key; if TOOLYARD_SECRET_KEY_FORMER has the new key, swap"
            " the two. A replaced key cannot become the current key again",
        )
    try:
        cipher.decrypt(canary, CANARY_ID)
    except Unreadable:
        raise WrongKey(
            "the database was encrypted with another secret key",
            hint="set TOOLYARD_SECRET_KEY to the key that was used before, or unset it to use the key file"
            f" {KEY_FILE_NAME} in the data directory; to change the key, set TOOLYARD_SECRET_KEY_FORMER to"
            " the old one",
        ) from None
