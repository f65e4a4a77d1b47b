"""Brings a database to the tables of this version, once, whoever opens it first.

Alembic is loaded only where there is something to do: a database that is up to date costs one query.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

from sqlalchemy import Connection, inspect, text

from toolyard.store.errors import DatabaseNewer, DatabaseUnusable

__all__ = ["HEAD", "migrate", "read_schema_version"]

HEAD = "0009"
"""The newest revision in ``migrations/versions``."""

_MIGRATION_LOCK_ID = 0x746F6F6C79617264
"""Of PostgreSQL's advisory locks, the one for changing our tables."""
_ALEMBIC_LOCK = threading.Lock()
"""Alembic hands its scripts what they work on through globals."""


def read_schema_version(connection: Connection) -> str | None:
    """The revision that the tables have; None: there are none yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def migrate(connection: Connection, statement_seconds: float) -> None:
    """Run what is missing, in the transaction of this connection. Those who come meanwhile wait.

    With PostgreSQL a statement may take up to ``seconds`` as long as the server answers.
    Raises DatabaseNewer where the tables are of a later version, DatabaseUnusable where they are not ours.
    """
    if connection.dialect.name == "sqlite":
        _run_migrations(connection)
        return
    from toolyard.store.sql.postgres_connections import TimedConnection  # only with that database

    with cast(TimedConnection, connection.connection.driver_connection).extend_timeout(statement_seconds):
        _run_migrations(connection)


def _run_migrations(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Waiting for another replica, and changing large tables, take as long as they take.
        connection.execute(text("SELECT set_config('statement_timeout', '0', true)"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK_ID})
        encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise DatabaseUnusable(
                f"the database stores texts as {encoding}, which cannot hold every character",
                hint="create it with ENCODING 'UTF8'",
            )
    found = read_schema_version(connection)
    if found == HEAD:
        return
    if found is None and inspect(connection).has_table("users"):
        raise DatabaseUnusable(
            "the database holds tables of another program", hint="give Toolyard a database of its own"
        )
    _upgrade_schema(connection, found)


def _upgrade_schema(connection: Connection, found: str | None) -> None:
    # Half a second that only a new or an old database has to pay.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).parent.parent / "migrations").replace("%", "%%")
    )
    config.set_main_option("path_separator", "os")
    scripts = ScriptDirectory.from_config(config)
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise DatabaseNewer(
            f"the database was made by a later version of Toolyard (its tables are of revision {found},"
            f" ours of {HEAD})",
            hint="update Toolyard, or restore a backup from before the update",
        )
    config.attributes["connection"] = connection
    with _ALEMBIC_LOCK:
        command.upgrade(config, HEAD)
