"""``toolyard rekey``: encrypt the stored data with another key."""

from __future__ import annotations

import click

from toolyard.cli.audit_recording import record_audit_entry
from toolyard.cli.invocation import Command, Options, Usage, run_async
from toolyard.cli.output.console import print_json, show_note

__all__ = ["command"]


@click.command("rekey", cls=Command)
@click.pass_obj
def command(options: Options) -> int:
    """Encrypt the stored data with the current key instead of the former one.

    Set secret_key to the new key and secret_key_former to the previous one, for every server that uses the
    database; then run this command, and unset secret_key_former. Servers may keep running, and an interrupted
    run can be repeated.
    """
    settings = options.load_settings()
    if settings.secret_key_former is None:
        raise Usage(
            "nothing to do: no former key is set",
            hint="set secret_key_former to the current key, and secret_key to the new one",
        )
    from toolyard.store import Database  # slow to load

    async def rekey_database() -> tuple[int, int]:
        database = await Database.open_from_settings(settings, options.resolved_data_dir)
        try:
            done = await database.key_rotation.reencrypt_all()
            await record_audit_entry(
                database, "database.rekey", encrypted=done.reencrypted, lost=done.unreadable
            )
        finally:
            await database.close()
        return done.reencrypted, done.unreadable

    sealed, lost = run_async(rekey_database())
    if options.json:
        print_json({"encrypted": sealed, "lost": lost})
        return 0
    print(f"{sealed:,} values were encrypted with the new key; secret_key_former can be unset")
    if not sealed:
        show_note("if you expected more, check that secret_key is the new key and secret_key_former the old")
    if lost:
        show_note(f"{lost:,} values cannot be decrypted with either key and are unchanged; enter them again")
    return 0
