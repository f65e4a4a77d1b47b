"""``toolyard logout``: delete the sign-in to a configured server."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.input.completion import complete_servers
from toolyard.cli.invocation import Command, Options, run_async
from toolyard.cli.output.console import one_line, print_json

if TYPE_CHECKING:
    from toolyard.cli.terminal_sign_in import SignInServer

__all__ = ["command"]


@click.command("logout", cls=Command)
@click.argument("server", shell_complete=complete_servers)
@click.pass_obj
def command(options: Options, server: str) -> int:
    """Delete the tokens of `toolyard login SERVER`, and revoke them if the authorization server supports
    that. If it does not, revoke access on its page of connected apps."""
    from toolyard.cli.terminal_sign_in import find_sign_in_server  # not for the help

    chosen = find_sign_in_server(options.load_config(), server)
    there_was = run_async(_sign_out(options, chosen))
    if options.json:
        print_json({"server": server, "signed_out": there_was})
    else:
        words = "signed out of" if there_was else "you were not signed in to"
        print(f"{words} '{one_line(server)}'")
    return 0


async def _sign_out(options: Options, sign_in_server: SignInServer) -> bool:
    from toolyard.net import AddressGuard, OutboundHttp
    from toolyard.registry.sign_out import SignOutService
    from toolyard.store.lazy_database import LazyDatabase
    from toolyard.types.account import LOCAL_PRINCIPAL  # slow to load, as the whole core is

    settings = options.load_settings()
    database = LazyDatabase(settings, options.resolved_data_dir)
    net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
    returning: list[Coroutine[Any, Any, None]] = []
    try:
        storage = await database.open_auth_storage()
        if storage is None:
            return False
        there_was = await SignOutService(storage, net, returning.append).sign_out_of_server(
            sign_in_server.server, LOCAL_PRINCIPAL
        )
        for each in returning:
            await each
        return there_was
    finally:
        await net.close()
        await database.close()
