"""``toolyard catalog``: list, search and show well-known servers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from toolyard.cli.invocation import Command, Options, Usage, run_async, shared_params
from toolyard.cli.output.console import Column, one_line, print_json, show_note, show_table
from toolyard.config.known_servers import (
    CheckMethod,
    KnownServer,
    SignInMethod,
    read_known_servers,
    search_known_servers,
)
from toolyard.config.suggestions import did_you_mean
from toolyard.errors import ServerError

if TYPE_CHECKING:
    from toolyard.registry.public_registry import PublicRegistry

__all__ = ["command", "find_known_server"]

T = TypeVar("T")

_COLUMNS = (
    Column("server", style="cyan", never_truncate=True),
    Column("sign-in"),
    Column("checked"),
    Column("purpose", wraps=True),
)
_SIGN_IN_TEXTS = {
    SignInMethod.NONE: "not needed",
    SignInMethod.OAUTH: "in the browser, once it is added",
    SignInMethod.KEY: "with a key",
}
_CHECK_TEXTS = {
    CheckMethod.STARTED: "started without a key, and its tools listed",
    CheckMethod.PACKAGE: "its package was read",
    CheckMethod.DOCUMENTS: "its address is in published documents",
}


@click.group("catalog")
def command() -> None:
    """Find well-known servers. `toolyard add NAME` sets one up.

    The catalogue is part of Toolyard and needs no network. If the setting public_registry has the address of
    a registry with the official API (v0.1), `search`, `show` and `add` use it, too.
    """


command.params += shared_params()


@command.command("list", cls=Command, short_help="List the servers of the catalogue.")
@click.pass_obj
def _list(options: Options) -> None:
    """List the servers of the catalogue."""
    _show_servers(options, read_known_servers().values())


@command.command("search", cls=Command, short_help="Find servers by words.")
@click.argument("words", nargs=-1, required=True)
@click.pass_obj
def _search(options: Options, words: tuple[str, ...]) -> None:
    """Find servers by words of their name and purpose: `toolyard catalog search issues`."""
    text = " ".join(words)
    found = search_known_servers(text, read_known_servers().values())
    try:
        found += _query_registry(options, lambda registry: registry.search(text)) or []
    except ServerError as error:
        show_note(f"the public registry was not searched: {one_line(error.cause)}", error.hint)
    _show_servers(options, found)
    if not found and not options.json:
        show_note(f"no known server matches '{one_line(text)}'", "`toolyard catalog list` shows all")


@command.command("show", cls=Command, short_help="Show a server with its entry.")
@click.argument("name")
@click.pass_obj
def _show(options: Options, name: str) -> None:
    """Show what a server is for, how it signs in, what it needs, and the entry that `add` writes."""
    server = find_known_server(options, name)
    if options.json:
        print_json(server.as_json())
        return
    print(f"{one_line(server.title)} ({one_line(server.id)})\n{one_line(server.purpose)}\n")
    checked = (
        f"{_CHECK_TEXTS[server.check_method]}, {server.checked_on}"
        if server.check_method
        else "not checked: a public registry describes it"
    )
    rows = [("sign-in", _SIGN_IN_TEXTS[server.sign_in]), ("checked", checked)]
    rows += [("documents", server.documents)] if server.documents else []
    rows += [(each.name, each.purpose) for each in server.variables]
    for label, text in rows:
        print(f"{one_line(label)}: {one_line(text)}")
    print(
        f"\n{json.dumps(dict(server.entry), indent=2)}\n\nAdd it with `toolyard add {one_line(server.id)}`."
    )


def find_known_server(options: Options, name: str) -> KnownServer:
    """Return a server of the catalogue, or of the public registry. Raises Usage if it is unknown."""
    if "://" in name:
        hint = f"write `toolyard add NAME {one_line(name)}`"
        raise Usage("a server that is added by its URL needs a name", hint=hint)
    known = read_known_servers()
    found = known.get(name)
    if found is None and "/" in name:
        found = _query_registry(options, lambda registry: registry.find(name))
    if found is None:
        near = did_you_mean(name, known, list_known=False)
        ways = f"write `toolyard add {one_line(name)} -- COMMAND`, or `toolyard add {one_line(name)} URL`"
        raise Usage(
            f"'{one_line(name)}' is not a known server, and has neither a command nor a URL",
            hint=f"{near} {ways}" if near else f"{ways}; `toolyard catalog search` finds known servers",
        )
    return found


def _query_registry(options: Options, ask: Callable[[PublicRegistry], Awaitable[T]]) -> T | None:
    """Ask the public registry, if the setting has an address. Raises ServerError."""

    address = options.load_settings().public_registry
    return None if address is None else run_async(_query_registry_at(address, ask))


async def _query_registry_at(address: str, ask: Callable[[PublicRegistry], Awaitable[T]]) -> T:
    from toolyard.net import OutboundHttp  # only where a registry is used
    from toolyard.registry.public_registry import PublicRegistry

    net = OutboundHttp()
    try:
        return await ask(PublicRegistry(net, address))
    finally:
        await net.close()


def _show_servers(options: Options, servers: Iterable[KnownServer]) -> None:
    if options.json:
        print_json([server.as_json() for server in servers])
        return
    show_table(
        _COLUMNS,
        (
            (server.id, server.sign_in.value, (server.check_method or "no"), server.purpose)
            for server in servers
        ),
    )
