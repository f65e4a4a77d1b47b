"""``toolyard login`` and ``logout``: sign in to a configured server, and delete the sign-in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolyard.cli.database import open_existing_database, open_sign_out_service
from toolyard.cli.input.completion import complete_servers
from toolyard.cli.invocation import (
    Command,
    Options,
    PositiveSeconds,
    Usage,
    open_yard,
    print_outcome,
    run_async,
)
from toolyard.cli.output.console import format_count, one_line, print_json, show_note, style_text
from toolyard.cli.output.progress import ProgressIndicator
from toolyard.errors import ServerError
from toolyard.types.server import State

if TYPE_CHECKING:
    from toolyard.auth.storage import OAuthGrant
    from toolyard.cli.terminal_sign_in import SignInCandidate
    from toolyard.types.server import Configuration, Server

__all__ = ["DEFAULT_TIMEOUT_SECONDS", "check_server", "commands", "sign_in"]

DEFAULT_TIMEOUT_SECONDS = 300.0


@click.command("login", cls=Command)
@click.argument("server", shell_complete=complete_servers)
@click.option("--paste", is_flag=True, help="Paste the address or code instead of waiting for the browser.")
@click.option("--no-browser", is_flag=True, help="Print the address without opening a browser.")
@click.option("--scope", "scopes", metavar="S", multiple=True, help="Request this scope. May be repeated.")
@click.option(
    "--issuer", metavar="URL", help="Confirm this issuer: the client secret of the entry may be sent there."
)
@click.option(
    "--timeout",
    metavar="S",
    type=PositiveSeconds(),
    default=DEFAULT_TIMEOUT_SECONDS,
    help="Seconds to wait for the sign-in. Default: 300.",
)
@click.pass_obj
def _login(
    options: Options,
    server: str,
    paste: bool,
    no_browser: bool,
    scopes: tuple[str, ...],
    issuer: str | None,
    timeout: float,
) -> int:
    """Sign in to SERVER by OAuth, in your browser. The tokens are stored encrypted in the data directory, and
    are used by every command and the library.

    The browser returns to this machine. If it runs on another one, paste the final address, or the code that
    it shows.

    A client secret or key of the entry is sent only to a known issuer: from the entry, from an earlier
    sign-in, or because you confirm it, here or with --issuer. A server with the grant client_credentials
    signs in by itself once its issuer is confirmed.
    """
    from toolyard.cli.terminal_sign_in import find_sign_in_server  # not for the help

    configuration = options.load_config()
    chosen = find_sign_in_server(configuration, server)
    if chosen.server.disabled_reason is not None:
        raise Usage(f"server '{server}' is disabled: {chosen.server.disabled_reason}")
    oauth = chosen.server.oauth
    if oauth is not None and oauth.grant == "client_credentials" and oauth.issuer is not None:
        raise Usage(
            f"server '{server}' signs in automatically",
            hint="no login is needed; `toolyard servers` shows whether the server works",
        )
    if issuer is not None:
        chosen = _with_issuer(chosen, issuer)
    if scopes:
        chosen = _with_oauth(chosen, scopes=scopes)
    return run_async(sign_in(options, chosen, paste=paste, browser=not no_browser, timeout_seconds=timeout))


def _with_issuer(chosen: SignInCandidate, issuer: str) -> SignInCandidate:
    from toolyard.auth.storage import same_issuer  # not for the help

    oauth = chosen.server.oauth
    if oauth is not None and oauth.issuer is not None and not same_issuer(oauth.issuer, issuer):
        raise Usage(
            f"the entry of server '{chosen.server.id}' names the issuer {oauth.issuer}",
            hint="change the entry if that is wrong",
        )
    return _with_oauth(chosen, issuer=issuer)


def _with_oauth(chosen: SignInCandidate, **changes: Any) -> SignInCandidate:
    from toolyard.types.server import OAuthSpec  # not for the help

    oauth = chosen.server.oauth or OAuthSpec()
    return replace(chosen, server=replace(chosen.server, oauth=replace(oauth, **changes)))


async def sign_in(
    options: Options, sign_in_server: SignInCandidate, *, paste: bool, browser: bool, timeout_seconds: float
) -> int:
    """Sign in to a server, check that it works, and report both. Returns an exit code."""
    from toolyard.auth.errors import DiscoveryFailed, SignInNotNeeded  # slow to load, as the whole core is
    from toolyard.cli.terminal_sign_in import sign_in_at_terminal

    try:
        grant = await sign_in_at_terminal(
            options.load_settings(),
            options.resolved_data_dir,
            sign_in_server,
            paste=paste,
            browser=browser,
            timeout_seconds=timeout_seconds,
            quiet=options.json,
        )
    except (DiscoveryFailed, SignInNotNeeded) as error:
        # A server that needs no sign-in does not report one either. One that fails does not ask for it.
        state, _, failure = await check_server(options, sign_in_server.server.id)
        if state is not State.READY:
            if failure is not None and isinstance(error, SignInNotNeeded):
                raise failure from None
            raise
        name = sign_in_server.server.id
        text = f"server '{one_line(name)}' works without a sign-in"
        print_outcome(options, text, server=name, signed_in=False, state=State.READY.value, tools=None)
        return 0
    return await _show_sign_in(options, sign_in_server, grant)


async def _show_sign_in(options: Options, sign_in_server: SignInCandidate, grant: OAuthGrant) -> int:
    name = sign_in_server.server.id
    state, tools, failure = (None, None, None)
    if sign_in_server.server.enabled:
        state, tools, failure = await check_server(options, name)
    if options.json:
        print_json(_sign_in_json(sign_in_server, grant, state, tools, failure))
    else:
        print(
            f"{style_text('signed in', 'green', sys.stdout)} to '{one_line(name)}"
            f"'{_format_tool_count(state, tools)}"
        )
        if not sign_in_server.server.enabled:
            show_note(f"server '{name}' is turned off in its entry")
    if failure is None:
        return 0
    if not options.json:
        show_note(f"but the server does not work: {one_line(failure.cause)}", failure.hint)
    return failure.exit_code


def _format_tool_count(state: State | None, tools: int | None) -> str:
    return f": {format_count(tools, 'tool')}" if state is State.READY and tools is not None else ""


async def check_server(
    options: Options, name: str, configuration: Configuration | None = None
) -> tuple[State, int | None, ServerError | None]:
    """Connect to one server as other commands do, and list its tools. ``configuration`` is used in place of
    the files."""
    async with (
        open_yard(options, configuration) as yard,
        ProgressIndicator(f"connecting to {name}", quiet=options.json),
    ):
        await yard.tools(server=name, fresh=True)
        roster = yard.known()
        status = next(each for each in yard.servers() if each.server == name)
        catalogue = roster.catalogues.get(name)
        tools = None if catalogue is None else len(catalogue.definitions)
        return status.state, tools, roster.failures.get(name)


def _sign_in_json(
    sign_in_server: SignInCandidate,
    grant: OAuthGrant,
    state: State | None,
    tools: int | None,
    failure: ServerError | None,
) -> Mapping[str, Any]:
    return {
        "server": sign_in_server.server.id,
        "signed_in": True,
        "issuer": grant.issuer,
        "scopes": list(grant.scopes),
        "refreshable": grant.refresh_token is not None,
        "state": None if state is None else state.value,
        "tools": tools,
        "cause": None if failure is None else failure.cause,
        "hint": None if failure is None else failure.hint,
    }


@click.command("logout", cls=Command)
@click.argument("server", shell_complete=complete_servers)
@click.pass_obj
def _logout(options: Options, server: str) -> int:
    """Delete the tokens of `toolyard login SERVER`, and revoke them if the authorization server supports
    that. If it does not, revoke access on its page of connected apps."""
    from toolyard.cli.terminal_sign_in import find_sign_in_server  # not for the help

    chosen = find_sign_in_server(options.load_config(), server)
    there_was = run_async(_sign_out(options, chosen.server))
    words = "signed out of" if there_was else "you were not signed in to"
    print_outcome(options, f"{words} '{one_line(server)}'", server=server, signed_out=there_was)
    return 0


async def _sign_out(options: Options, server: Server) -> bool:
    from toolyard.types.account import LOCAL_PRINCIPAL

    async with open_existing_database(options) as database:
        if database is None:
            return False
        async with open_sign_out_service(options, database.auth) as sign_outs:
            return await sign_outs.sign_out_of_server(server, LOCAL_PRINCIPAL)


commands = {"login": _login, "logout": _logout}
