"""``toolyard move``: copy the data from SQLite to PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import click

from toolyard.cli.audit_recording import record_audit_entry
from toolyard.cli.invocation import Command, Options, Usage, run_async
from toolyard.cli.output.console import print_json

__all__ = ["command"]


@click.command("move", cls=Command)
@click.pass_obj
def command(options: Options) -> int:
    """Copy all data of SQLite in the data directory into an empty PostgreSQL database.

    Stop the server, set database_url to the new database and secret_key to the content of the file
    secret.key, run this command, and start the server again. People stay signed in. The SQLite file is not
    changed. Either everything is copied or nothing.
    """
    from toolyard.store.sql.key_file import DATABASE_FILE_NAME

    settings, file = options.load_settings(), options.resolved_data_dir / DATABASE_FILE_NAME
    if settings.database_url is None:
        raise Usage("no target database is set", hint="set database_url to an empty PostgreSQL database")
    if settings.secret_key is None:
        raise Usage(
            "no secret key is set, and PostgreSQL requires one",
            hint=f"set secret_key to the content of {options.resolved_data_dir / 'secret.key'}",
        )
    if not file.exists():
        raise Usage(f"nothing to move: {file} does not exist", hint="set the data directory with --data-dir")
    moved = run_async(
        _move_and_record(
            options.resolved_data_dir, settings.database_url, settings.secret_key, settings.secret_key_former
        )
    )
    if options.json:
        print_json({"moved": moved})
        return 0
    print(f"{sum(moved.values()):,} rows were copied; {file} is unchanged")
    for name, count in moved.items():
        print(f"{name.replace('_', ' ')}\t{count:,}")
    return 0


async def _move_and_record(
    data_dir: Path, url: str, secret_key: str, former_key: str | None
) -> dict[str, int]:
    """Copy everything, and record that in the new database. Return the numbers of rows by table."""
    import asyncio  # slow to load, as the store is

    from toolyard.store import Database
    from toolyard.store.transfer import copy_sqlite_to_postgresql

    copied = await asyncio.to_thread(copy_sqlite_to_postgresql, data_dir, url, secret_key, former_key)
    moved = {name: count for name, count in copied.items() if count}
    database = await Database.open(data_dir, url=url, secret_key=secret_key, former_key=former_key)
    try:
        await record_audit_entry(database, "database.move", rows=sum(moved.values()))
    finally:
        await database.close()
    return moved
