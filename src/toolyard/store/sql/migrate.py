"""Schema migrations, run by the first process that opens a database and may change its tables.

Alembic is imported only if a migration is needed: opening an up-to-date database costs one query, and a new
SQLite file gets its tables at once.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, inspect, text

from toolyard.store.errors import DatabaseNewer, DatabaseUnusable
from toolyard.store.sql.tables import metadata

__all__ = [
    "HEAD",
    "MIGRATION_LOCK_ID",
    "create_schema",
    "migrate",
    "read_schema_version",
    "upgrade_schema",
]

HEAD = "0021"
"""The newest revision in ``migrations/versions``."""

MIGRATION_LOCK_ID = 0x746F6F6C79617264
"""Id of the PostgreSQL advisory lock held during migrations."""
_ALEMBIC_LOCK = threading.Lock()
"""Serializes migrations in one process, since Alembic passes the connection to its scripts in globals."""


def read_schema_version(connection: Connection) -> str | None:
    """Return the revision of the tables; None if there are none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def migrate(connection: Connection, statement_seconds: float) -> None:
    """Run missing migrations in the current transaction. Other processes wait until it ends.

    With PostgreSQL a statement may take up to ``statement_seconds`` while the server still answers other
    connections. Raises DatabaseNewer if the tables are of a later version, and DatabaseUnusable if they
    belong to another program or the encoding is not UTF-8.
    """
    if connection.dialect.name == "sqlite":
        _run_migrations(connection)
        return
    from toolyard.store.sql.postgres_connections import TimedConnection  # loads psycopg

    with cast(TimedConnection, connection.connection.driver_connection).extend_timeout(statement_seconds):
        _run_migrations(connection)


def _run_migrations(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # No server-side limit: another replica's migration or a change to a large table may take minutes. The
        # client's own deadline still detects a frozen server.
        connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK_ID})
        encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise DatabaseUnusable(
                f"the database encoding is {encoding}, which cannot store every character",
                hint="create the database with ENCODING 'UTF8'",
            )
    # Read under the lock: another process may have migrated while this one waited.
    version = read_schema_version(connection)
    if version == HEAD:
        return
    # Without Alembic's version table, a table of this name is not ours.
    if version is None and inspect(connection).has_table("users"):
        raise DatabaseUnusable(
            "the database contains tables of another program", hint="use a separate database for Toolyard"
        )
    if version is None and connection.dialect.name == "sqlite":
        create_schema(connection)
    else:
        upgrade_schema(connection, version)


def create_schema(connection: Connection) -> None:
    """Create the tables of a new file at once, without Alembic, as the migrations would make them."""
    metadata.create_all(connection)
    connection.execute(
        text(
            "CREATE TABLE alembic_version ( "
            "version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num) )"
        )
    )
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def upgrade_schema(connection: Connection, version: str | None) -> None:
    """Run the migrations after a version; all of them for None."""
    # Importing Alembic takes half a second, which only outdated and new PostgreSQL databases need to spend.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).parent.parent / "migrations").replace("%", "%%")
    )
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    if version is not None and version not in {script.revision for script in scripts.walk_revisions()}:
        raise DatabaseNewer(
            f"the database is from a later version of Toolyard (its tables have revision {version},"
            f" this version has {HEAD})",
            hint="update Toolyard, or restore a backup from before the update",
        )
    config.attributes["connection"] = connection
    with _ALEMBIC_LOCK:
        command.upgrade(config, HEAD)
