"""``toolyard migrate``, ``rekey`` and ``move``: tables, secret key and kind of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolyard.cli.database import open_database, record_audit_entry, run_with_database
from toolyard.cli.invocation import Command, Options, Usage, print_outcome, run_async
from toolyard.cli.output.console import format_count, print_json, show_note

if TYPE_CHECKING:
    from toolyard.store import Database

__all__ = ["commands"]


@click.command("migrate", cls=Command)
@click.pass_obj
def _migrate(options: Options) -> None:
    """Update the tables of the database to this version of Toolyard.

    `toolyard serve` does so when it starts. Other commands never change the tables of a PostgreSQL database,
    since servers of the earlier version may be using it: stop these first.
    """
    from toolyard.store.sql.migrate import HEAD  # slow to load

    async def migrate_database() -> None:
        async with open_database(options, migrates=True):
            pass

    run_async(migrate_database())
    print_outcome(options, f"the tables of the database are up to date (revision {HEAD})", revision=HEAD)


@click.command("rekey", cls=Command)
@click.pass_obj
def _rekey(options: Options) -> None:
    """Encrypt the stored data with the current key instead of the former one.

    Set secret_key to the new key and secret_key_former to the previous one, for every server that uses the
    database; then run this command, and unset secret_key_former. Servers may keep running, and an interrupted
    run can be repeated.
    """
    if options.load_settings().secret_key_former is None:
        raise Usage(
            "nothing to do: no former key is set",
            hint="set secret_key_former to the current key, and secret_key to the new one",
        )
    sealed, lost = run_with_database(options, _encrypt_again)
    if options.json:
        print_json({"encrypted": sealed, "lost": lost})
        return
    print(f"{format_count(sealed, 'value')} encrypted with the new key; secret_key_former can be unset")
    if not sealed:
        show_note("if you expected more, check that secret_key is the new key and secret_key_former the old")
    if lost:
        show_note(
            f"{format_count(lost, 'value')} unchanged, because neither key decrypts them; enter them again"
        )


async def _encrypt_again(database: Database) -> tuple[int, int]:
    """Return the numbers of values that were encrypted, and of those that cannot be decrypted."""
    done = await database.key_rotation.reencrypt_all()
    await record_audit_entry(database, "database.rekey", encrypted=done.reencrypted, lost=done.unreadable)
    return done.reencrypted, done.unreadable


@click.command("move", cls=Command)
@click.pass_obj
def _move(options: Options) -> None:
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
    moved = run_async(_copy_database(options, settings.database_url, settings.secret_key))
    if options.json:
        print_json({"moved": moved})
        return
    print(f"{sum(moved.values()):,} rows were copied; {file} is unchanged")
    for name, count in moved.items():
        print(f"{name.replace('_', ' ')}\t{count:,}")


async def _copy_database(options: Options, url: str, secret_key: str) -> dict[str, int]:
    """Copy everything, and record that in the new database. Return the numbers of rows by table."""
    import asyncio  # slow to load, as the store is

    from toolyard.store.transfer import copy_sqlite_to_postgresql

    former_key, folder = options.load_settings().secret_key_former, options.resolved_data_dir
    copied = await asyncio.to_thread(copy_sqlite_to_postgresql, folder, url, secret_key, former_key)
    moved = {name: count for name, count in copied.items() if count}
    async with open_database(options, migrates=True) as database:
        await record_audit_entry(database, "database.move", rows=sum(moved.values()))
    return moved


commands = {"migrate": _migrate, "rekey": _rekey, "move": _move}
