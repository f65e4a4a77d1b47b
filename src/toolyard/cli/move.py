"""``toolyard move``: from SQLite to PostgreSQL."""

from __future__ import annotations

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.ending import Usage
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.text import print_json
from toolyard.cli.running import run_async
from toolyard.config import load_settings

__all__ = ["command"]


@click.command("move", cls=Command, short_help=COMMANDS["move"])
@click.pass_obj
def command(options: Options) -> int:
    """Copy all that SQLite keeps in the data directory into an empty PostgreSQL database.

    Stop the server, set database_url to the new database and secret_key to the text of the file secret.key,
    run this, and start the server again. People stay signed in. The file is not changed. Either everything is
    copied or nothing.
    """
    from toolyard.store.lazy import FILE_NAME

    settings, file = load_settings(options.folder), options.folder / FILE_NAME
    if settings.database_url is None:
        raise Usage(
            "there is no database to move to", hint="set database_url to an empty PostgreSQL database"
        )
    if settings.secret_key is None:
        raise Usage(
            "there is no secret key, which PostgreSQL needs",
            hint=f"set secret_key to the text of {options.folder / 'secret.key'}",
        )
    if not file.exists():
        raise Usage(f"there is nothing to move: {file} is not there", hint="name the folder with --data-dir")
    import asyncio  # slow to load, as the store is

    from toolyard.store.moving import move

    work = asyncio.to_thread(
        move, options.folder, settings.database_url, settings.secret_key, settings.secret_key_former
    )
    moved = {name: count for name, count in run_async(work).items() if count}
    if options.json:
        print_json({"moved": moved})
        return 0
    print(f"{sum(moved.values()):,} rows were copied, and {file} stays as it was")
    for name, count in moved.items():
        print(f"{name.replace('_', ' ')}\t{count:,}")
    return 0
