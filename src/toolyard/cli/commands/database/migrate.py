"""``toolyard migrate``: update the tables of the database."""

from __future__ import annotations

import click

from toolyard.cli.invocation import Command, Options, run_async
from toolyard.cli.output.console import print_json

__all__ = ["command"]


@click.command("migrate", cls=Command)
@click.pass_obj
def command(options: Options) -> int:
    """Update the tables of the database to this version of Toolyard.

    `toolyard serve` does so when it starts. Other commands never change the tables of a PostgreSQL database,
    since servers of the earlier version may be using it: stop these first.
    """
    settings = options.load_settings()
    from toolyard.store import Database  # slow to load
    from toolyard.store.sql.migrate import HEAD

    async def migrate_database() -> None:
        database = await Database.open_from_settings(settings, options.resolved_data_dir, migrates=True)
        await database.close()

    run_async(migrate_database())
    if options.json:
        print_json({"revision": HEAD})
    else:
        print(f"the tables of the database are up to date (revision {HEAD})")
    return 0
