"""OAuth sign-in from a terminal: the browser returns to a local port, or the person pastes the redirect.

It also finds the server and the storage key that ``login`` and ``logout`` act on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from yarl import URL

from toolyard.auth.errors import AnswerRejected, AuthError, ClientForgotten, IssuerUnconfirmed
from toolyard.auth.loopback_redirect import CallbackListener
from toolyard.auth.sign_in_flow import (
    AuthorizationRequest,
    AuthorizationResponse,
    SignInFlow,
)
from toolyard.auth.sign_in_target import ClientIdentity, SignInTarget
from toolyard.auth.storage import AuthStorage, LazyAuthStorage, OAuthGrant
from toolyard.cli.input.prompts import ask_yes_no_async, read_line_async
from toolyard.cli.invocation import Usage, unknown_server_error
from toolyard.cli.output.console import is_terminal, one_line, show_error, show_note, style_text
from toolyard.config.settings.table import Settings
from toolyard.errors import ServerError
from toolyard.net import AddressGuard, OutboundHttp
from toolyard.registry.auth_provider_factory import build_config_target, config_grant_key
from toolyard.store import Database
from toolyard.types.account import LOCAL_PRINCIPAL
from toolyard.types.server import Configuration, HttpSpec, Server

__all__ = [
    "PastedRedirectError",
    "SignInCandidate",
    "find_sign_in_server",
    "open_browser",
    "parse_pasted_redirect",
    "sign_in_at_terminal",
]


@dataclass(frozen=True, slots=True)
class SignInCandidate:
    """A server that supports sign-in."""

    server: Server
    spec: HttpSpec


def find_sign_in_server(configuration: Configuration, server_id: str) -> SignInCandidate:
    """Return the server with this id. Raises Usage if it does not exist or needs no sign-in."""
    server = configuration.servers.get(server_id)
    if server is None:
        raise unknown_server_error(server_id, configuration.servers)
    spec = server.transport
    if not isinstance(spec, HttpSpec):
        raise Usage(
            f"server '{server_id}' is a local command, which Toolyard cannot sign in to",
            hint="set its credentials in 'env' of its entry",
        )
    if spec.auth_provider_id is not None:
        raise Usage(
            f"server '{server_id}' gets its credentials from the auth provider '{spec.auth_provider_id}'",
            hint="remove authProviderId from its entry to sign in here",
        )
    if any(name.lower() == "authorization" for name in spec.headers):
        raise Usage(
            f"server '{server_id}' already sends an Authorization header",
            hint="remove that header from its entry to sign in here",
        )
    return SignInCandidate(server, spec)


_MAX_PASTED_CHARACTERS = 20_000


class PastedRedirectError(ValueError):
    """Raised for a pasted text that does not complete the sign-in. The message says why; the sign-in can
    continue."""


def parse_pasted_redirect(
    text: str, state: str, redirect_uri: str, *, needs_address: bool
) -> AuthorizationResponse:
    """Return the authorization response of a pasted text. Raises PastedRedirectError.

    ``needs_address``: a code or query alone does not prove at which redirect URI the browser arrived.
    """
    text = text.strip().strip("<>\"'")
    if not text:
        raise PastedRedirectError("nothing was pasted")
    if len(text) > _MAX_PASTED_CHARACTERS or any(char.isspace() or not char.isprintable() for char in text):
        raise PastedRedirectError("this is neither an address nor a code")
    if "://" in text:
        return _parse_redirect_url(text, state)
    if needs_address:
        raise PastedRedirectError("the code alone is not enough here: paste the whole address")
    if "state=" in text:
        return _parse_redirect_url(f"{redirect_uri}?{text.lstrip('?')}", state)
    return AuthorizationResponse(redirect_uri, {"code": text, "state": state})


def _parse_redirect_url(url: str, state: str) -> AuthorizationResponse:
    try:
        response = AuthorizationResponse.parse(url)
    except AnswerRejected as error:
        raise PastedRedirectError(error.cause) from None
    if "state" not in response.params:
        raise PastedRedirectError("this is not the address that the browser was redirected to")
    if response.params["state"] != state:
        raise PastedRedirectError("this address belongs to another sign-in")
    return response


def open_browser(url: str) -> bool:
    """Try to open a page in a browser window. Return False without a graphical display."""
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    graphical = bool(screen) or sys.platform in ("darwin", "win32")
    # Without a display, Python would start a text browser that takes over the terminal.
    if not graphical and not os.environ.get("BROWSER"):
        return False
    # Some browsers block the process that starts them, so a daemon thread does it.
    threading.Thread(target=_open_url, args=(url,), daemon=True).start()
    return True


def _open_url(url: str) -> None:
    try:
        webbrowser.open(url)
    except (OSError, webbrowser.Error):
        # The address is printed as well.
        return


_MAX_PASTE_ATTEMPTS = 5
_FIRST_DYNAMIC_PORT = 49_152
"""The first port of the dynamic range, which is not assigned to any service."""


async def sign_in_at_terminal(
    settings: Settings,
    data_dir: Path,
    candidate: SignInCandidate,
    *,
    paste: bool,
    browser: bool,
    timeout_seconds: float,
    quiet: bool,
) -> OAuthGrant:
    """Sign in the person at this terminal, and store the grant. ``quiet`` prints only the address.

    Raises AuthError, AuthUnavailable or StoreError, and then stores nothing.
    """
    name = candidate.server.id
    database = await Database.open_from_settings(settings, data_dir)
    net = OutboundHttp(AddressGuard.from_settings(settings.guard_allow, settings.guard_deny))
    try:
        target = build_config_target(candidate.server, candidate.spec)
        storage = LazyAuthStorage.wrap(database.auth)
        key = config_grant_key(candidate.server, LOCAL_PRINCIPAL)
        if target.oauth.grant == "client_credentials":
            flow = SignInFlow(net, storage, ClientIdentity("http://127.0.0.1/callback"))
            return await _sign_in_as_client(flow, storage, key, target, name)
        port = target.oauth.callback_port or _choose_callback_port(target.url)
        async with _open_redirect_endpoint(port, paste=paste) as back:
            flow = SignInFlow(net, storage, ClientIdentity(back.redirect_uri))
            person = _SignInPrompt(name, back, browser=browser, timeout_seconds=timeout_seconds, quiet=quiet)
            return await _run_flow(flow, storage, key, target, person)
    except ServerError as error:
        error.server = name
        raise
    finally:
        await net.close()
        await database.close()


async def _sign_in_as_client(
    flow: SignInFlow, storage: AuthStorage, key: str, target: SignInTarget, name: str
) -> OAuthGrant:
    """Obtain tokens with the client's own credentials, once the issuer is confirmed."""
    try:
        return await flow.sign_in_as_client(key, target)
    except IssuerUnconfirmed as error:
        await _confirm(storage, target, name, error)
    return await flow.sign_in_as_client(key, target)


async def _confirm(storage: AuthStorage, target: SignInTarget, name: str, error: IssuerUnconfirmed) -> None:
    """Ask the person at the terminal about the issuer, and store a yes. Raises the error after a no."""
    error.hint = f"if you registered the client there: `toolyard login {name} --issuer {error.issuer}`"
    if not is_terminal(sys.stdin):
        raise error
    question = (
        f"server '{one_line(name)}' signs in at {one_line(error.issuer)}. Send the client secret or key of"
        " its entry there?"
    )
    if not await ask_yes_no_async(question):
        raise error
    await storage.bind_issuer(target.url, target.oauth.client_id or "", error.issuer, for_secret=True)


async def _run_flow(
    flow: SignInFlow, storage: AuthStorage, key: str, target: SignInTarget, prompt: _SignInPrompt
) -> OAuthGrant:
    for last in (False, True):
        try:
            started = await flow.begin(key, target)
        except IssuerUnconfirmed as error:
            await _confirm(storage, target, prompt.server, error)
            started = await flow.begin(key, target)
        try:
            answer = await prompt.wait_for_response(started)
        except BaseException:
            # Given up, so that nobody can complete it later with this state.
            await storage.take_pending(started.state)
            raise
        try:
            return await flow.finish(answer)
        except ClientForgotten as error:
            if last:
                raise
            show_note(error.cause, "Toolyard registers again: sign in again")
    raise AssertionError("the last try returns")


@dataclass(frozen=True, slots=True)
class _RedirectEndpoint:
    """The redirect URI. Without a listener, the person pastes the address of the final page."""

    redirect_uri: str
    listener: CallbackListener | None


@asynccontextmanager
async def _open_redirect_endpoint(port: int, *, paste: bool) -> AsyncGenerator[_RedirectEndpoint]:
    if paste:
        yield _RedirectEndpoint(f"http://127.0.0.1:{port}/callback", None)
        return
    async with CallbackListener(port) as listener:
        yield _RedirectEndpoint(listener.redirect_uri, listener)


def _choose_callback_port(url: str) -> int:
    """Return a free port, so that no other program sees the code; for one server the same each time, if
    possible.

    The client is registered with that port, and some authorization servers accept no other.
    """
    usual = _FIRST_DYNAMIC_PORT + int.from_bytes(sha256(url.encode()).digest()[:4]) % (
        65_536 - _FIRST_DYNAMIC_PORT
    )
    for port in (usual, 0):
        with socket.socket() as probe, suppress(OSError):
            # Remains of a recent sign-in (TIME_WAIT) are not a listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    return 0


class _SignInPrompt:
    """Sends the person at the terminal to an address, and waits for the response."""

    def __init__(
        self, server: str, redirect: _RedirectEndpoint, *, browser: bool, timeout_seconds: float, quiet: bool
    ) -> None:
        self.server = server
        self._redirect = redirect
        self._opens_browser = browser
        self._timeout_seconds = timeout_seconds
        self._quiet = quiet

    async def wait_for_response(self, request: AuthorizationRequest) -> AuthorizationResponse:
        """Return the redirect. Raises AuthError if none arrives in time."""
        self._show_instructions(request)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._wait_for_first_response(request)
        except TimeoutError:
            raise AuthError(
                f"the sign-in was not completed within {self._timeout_seconds:g} s",
                hint="start again when you are ready; --timeout sets a longer limit",
            ) from None

    def _show_instructions(self, request: AuthorizationRequest) -> None:
        # Shown in punycode, so that look-alike letters are visible.
        host = URL(request.url).raw_host or ""
        self._print_message(
            f"Sign in to '{one_line(self.server)}' at {style_text(one_line(host), 'bold', sys.stderr)}:"
        )
        # Printed whole on its own line, so that it can be copied.
        print(f"\n{request.url}\n", file=sys.stderr, flush=True)
        if self._opens_browser and open_browser(request.url):
            self._print_message("Your browser should open automatically.")
        if self._redirect.listener is None:
            self._print_message(
                "After signing in, paste the final address from your browser, or the code that it shows:"
            )
        elif is_terminal(sys.stdin):
            self._print_message(
                "Waiting for the sign-in. If the browser is on another machine, paste its final address here."
            )

    def _print_message(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    async def _wait_for_first_response(self, request: AuthorizationRequest) -> AuthorizationResponse:
        listener = self._redirect.listener
        if listener is None:
            return await self._read_pasted_response(request)
        # The time limit of the caller ends first, and its message names the option.
        ways = [asyncio.ensure_future(listener.wait(self._timeout_seconds + 1, state=request.state))]
        if is_terminal(sys.stdin):
            ways.append(asyncio.ensure_future(self._read_pasted_response(request, wait_after_eof=True)))
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _read_pasted_response(
        self, request: AuthorizationRequest, *, wait_after_eof: bool = False
    ) -> AuthorizationResponse:
        """Return the pasted response. With ``wait_after_eof`` the end of input does not end the wait."""
        own = request.redirect_uri != self._redirect.redirect_uri
        for left in reversed(range(_MAX_PASTE_ATTEMPTS)):
            line = await read_line_async()
            if not line and wait_after_eof:
                # The browser can still come back to the listener.
                await asyncio.Event().wait()
            try:
                return parse_pasted_redirect(
                    line,
                    request.state,
                    request.redirect_uri,
                    needs_address=own or request.requires_iss_parameter,
                )
            except PastedRedirectError as wrong:
                if not left or not line:
                    raise AuthError(str(wrong), hint="start again, and paste the whole address") from None
                show_error(str(wrong), "paste the whole final address from your browser")
        raise AssertionError("the last try raises")
