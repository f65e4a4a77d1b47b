"""``toolyard logout``: forget the sign-in to a server of the configuration."""

from __future__ import annotations

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.input.completing import complete_servers
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.text import one_line, print_json
from toolyard.cli.running import run_async
from toolyard.cli.signing_in import signable
from toolyard.config import load_config, load_settings
from toolyard.model.server import Server

__all__ = ["command"]


@click.command("logout", cls=Command, short_help=COMMANDS["logout"])
@click.argument("server", shell_complete=complete_servers)
@click.pass_obj
def command(options: Options, server: str) -> int:
    """Forget what `toolyard login SERVER` has kept. The authorization server is not told; its own page of
    connected programs takes back what it gave."""
    chosen = signable(load_config(options.config, data_dir=options.folder), server)
    there_was = run_async(_logout(options, chosen.server))
    if options.json:
        print_json({"server": server, "signed_out": there_was})
    else:
        words = "signed out of" if there_was else "you were not signed in to"
        print(f"{words} '{one_line(server)}'")
    return 0


async def _logout(options: Options, server: Server) -> bool:
    from toolyard.model.principal import LOCAL  # slow to load, as the whole core is
    from toolyard.registry.credentials import config_key
    from toolyard.store.lazy import LazyDatabase

    settings = load_settings(options.folder)
    database = LazyDatabase(options.folder, url=settings.database_url, secret_key=settings.secret_key)
    try:
        storage = await database.auth()
        if storage is None:
            return False
        key = config_key(server, LOCAL)
        kept = await storage.grant(key)
        await storage.drop_grant(key)
        return kept is not None
    finally:
        await database.close()
