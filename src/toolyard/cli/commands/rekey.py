"""``toolyard rekey``: encrypt what is stored with another key."""

from __future__ import annotations

import click

from toolyard.cli.app import COMMANDS
from toolyard.cli.audit_entries import record
from toolyard.cli.error_exit import Usage
from toolyard.cli.input.options import Command, Options
from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import print_json
from toolyard.cli.runner import run_async
from toolyard.config import load_settings

__all__ = ["command"]


@click.command("rekey", cls=Command, short_help=COMMANDS["rekey"])
@click.pass_obj
def command(options: Options) -> int:
    """Encrypt what is stored with the key that is set now, in place of the former one.

    Set secret_key to the new key and secret_key_former to the one until now, for every server that uses the
    database; then run this, and unset secret_key_former. Servers may run meanwhile, and it may be broken off
    and begun again.
    """
    settings = load_settings(options.folder)
    if settings.secret_key_former is None:
        raise Usage(
            "there is no former key, so there is nothing to do",
            hint="set secret_key_former to the key until now, and secret_key to the new one",
        )
    from toolyard.store import Database  # slow to load

    async def work() -> tuple[int, int]:
        database = await Database.of(settings, options.folder)
        try:
            done = await database.rekeying.rekey()
            await record(database, "database.rekey", encrypted=done.sealed, lost=done.lost)
        finally:
            await database.close()
        return done.sealed, done.lost

    sealed, lost = run_async(work())
    if options.json:
        print_json({"encrypted": sealed, "lost": lost})
        return 0
    print(f"{sealed:,} values are encrypted with the new key; secret_key_former can be unset")
    if lost:
        note(f"{lost:,} values cannot be read with either key, and stay as they are; enter them again")
    return 0
