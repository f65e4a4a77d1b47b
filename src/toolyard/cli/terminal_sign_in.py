"""A sign-in from a terminal: a browser is sent away, and comes back to a port of ours or by pasting."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

from yarl import URL

from toolyard.auth.authorization_response import AuthorizationResponse
from toolyard.auth.errors import AuthError, ClientForgotten, IssuerUnconfirmed
from toolyard.auth.lazy_storage import LazyAuthStorage
from toolyard.auth.loopback_redirect import CallbackListener
from toolyard.auth.records import Grant
from toolyard.auth.scopes import asked_before
from toolyard.auth.sign_in_flow import Flow, Started
from toolyard.auth.sign_in_target import Ourselves, Target
from toolyard.auth.storage import AuthStorage
from toolyard.cli.browser import open_browser
from toolyard.cli.input.pasted_redirect import WrongPaste, read_pasted
from toolyard.cli.input.prompts import ask_while_running, line_while_running
from toolyard.cli.output.messages import note, show_error
from toolyard.cli.output.safe_text import one_line
from toolyard.cli.output.terminal import is_terminal, paint
from toolyard.cli.sign_in_target import Signable
from toolyard.config.settings.table import Settings
from toolyard.errors import ServerError
from toolyard.net import Guard, Net
from toolyard.registry.credentials import config_key, config_target
from toolyard.store import Database
from toolyard.types.principal import LOCAL

__all__ = ["TerminalFlow"]

_TRIES = 5
_FIRST_PORT = 49_152
"""From here on no port is anybody's."""


class TerminalFlow:
    """Signs the person at this terminal in, and keeps what comes of it in the database. ``quiet`` says only
    where to go."""

    def __init__(self, settings: Settings, data_dir: Path, *, quiet: bool = False) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._quiet = quiet

    async def sign_in(self, chosen: Signable, *, paste: bool, browser: bool, seconds: float) -> Grant:
        """Raises AuthError, AuthUnavailable or StoreError; then nothing is kept."""
        name = chosen.server.id
        settings = self._settings
        database = await Database.of(settings, self._data_dir)
        net = Net(Guard.of(settings.guard_allow, settings.guard_deny))
        try:
            target = config_target(chosen.server, chosen.spec)
            storage = LazyAuthStorage.over(database.auth)
            if target.oauth.grant == "client_credentials":
                flow = Flow(net, storage, Ourselves("http://127.0.0.1/callback"))
                return await self._by_itself(flow, storage, config_key(chosen.server, LOCAL), target, name)
            async with _way_back(target.oauth.callback_port or _usual_port(target.url), paste=paste) as back:
                flow = Flow(net, storage, Ourselves(back.redirect_uri))
                person = _Person(name, back, browser=browser, seconds=seconds, quiet=self._quiet)
                return await _through(flow, storage, config_key(chosen.server, LOCAL), target, person)
        except ServerError as error:
            error.server = name
            raise
        finally:
            await net.close()
            await database.close()

    async def _by_itself(
        self, flow: Flow, storage: AuthStorage, key: str, target: Target, name: str
    ) -> Grant:
        """Obtain tokens with the client's own credentials, once the issuer is confirmed."""
        try:
            return await flow.obtain(key, target)
        except IssuerUnconfirmed as error:
            await _confirm(storage, target, name, error)
        return await flow.obtain(key, target)


async def _confirm(storage: AuthStorage, target: Target, name: str, error: IssuerUnconfirmed) -> None:
    """Ask the person at the terminal about the issuer, and store a yes. Raises the error after a no."""
    error.hint = f"if you registered the client there: `toolyard login {name} --issuer {error.issuer}`"
    if not is_terminal(sys.stdin):
        raise error
    question = (
        f"server '{one_line(name)}' signs in at {one_line(error.issuer)}. Send the client secret or key of"
        " its entry there?"
    )
    if not await ask_while_running(question):
        raise error
    await storage.bind(target.url, target.oauth.client_id or "", error.issuer)


async def _through(flow: Flow, storage: AuthStorage, key: str, target: Target, person: _Person) -> Grant:
    for last in (False, True):
        kept = (await storage.grants((key,))).get(key)
        more = asked_before(kept, target.oauth.scopes)
        try:
            started = await flow.begin(key, target, more_scopes=more)
        except IssuerUnconfirmed as error:
            await _confirm(storage, target, person.server, error)
            started = await flow.begin(key, target, more_scopes=more)
        try:
            answer = await person.answer(started)
        except BaseException:
            await storage.take_pending(started.state)
            raise
        try:
            return await flow.finish(answer)
        except ClientForgotten as error:
            if last:
                raise
            note(error.cause, "Toolyard registers itself anew: sign in once more")
    raise AssertionError("the last try returns")


class _Back:
    """Where the browser comes back to. Without a listener nobody is there, and its address must be pasted."""

    def __init__(self, redirect_uri: str, listener: CallbackListener | None) -> None:
        self.redirect_uri = redirect_uri
        self.listener = listener


@asynccontextmanager
async def _way_back(port: int, *, paste: bool) -> AsyncGenerator[_Back]:
    if paste:
        yield _Back(f"http://127.0.0.1:{port}/callback", None)
        return
    async with CallbackListener(port) as listener:
        yield _Back(listener.redirect_uri, listener)


def _usual_port(url: str) -> int:
    """One on which nobody listens, so that no other program gets to see the code; for one server the same
    each time, if it can be. We are registered with it, and some authorization servers take no other."""
    usual = _FIRST_PORT + int.from_bytes(sha256(url.encode()).digest()[:4]) % (65_536 - _FIRST_PORT)
    for port in (usual, 0):
        with socket.socket() as probe, suppress(OSError):
            # What a sign-in of a minute ago left behind is no listener.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
    return 0


class _Person:
    """Sends the person at the terminal to an address, and waits for the answer."""

    def __init__(self, server: str, back: _Back, *, browser: bool, seconds: float, quiet: bool) -> None:
        self.server = server
        self._back = back
        self._browser = browser
        self._seconds = seconds
        self._quiet = quiet

    async def answer(self, started: Started) -> AuthorizationResponse:
        """Return the redirect. Raises AuthError where nobody comes in time."""
        self._show(started)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._first(started)
        except TimeoutError:
            raise AuthError(
                f"nobody finished signing in within {self._seconds:g} s",
                hint="begin again when you are ready; --timeout gives you longer",
            ) from None

    def _show(self, started: Started) -> None:
        # As browsers read it, letters that look like others spelt out.
        host = URL(started.url).raw_host or ""
        self._say(f"Sign in to '{one_line(self.server)}' at {paint(one_line(host), 'bold', sys.stderr)}:")
        # Alone on its line, whole, and also for programs: it must be copied.
        print(f"\n{started.url}\n", file=sys.stderr, flush=True)
        if self._browser and open_browser(started.url):
            self._say("Your browser should open by itself.")
        if self._back.listener is None:
            self._say("Then paste the address that the browser ends on, or the code that it shows:")
        elif is_terminal(sys.stdin):
            self._say("Waiting for it. On another machine? Paste the address that it ends on here.")

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    async def _first(self, started: Started) -> AuthorizationResponse:
        listener = self._back.listener
        if listener is None:
            return await self._pasted(started)
        ways = [asyncio.ensure_future(listener.wait(self._seconds + 1, state=started.state))]
        if is_terminal(sys.stdin):
            ways.append(asyncio.ensure_future(self._pasted(started, patient=True)))
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pasted(self, started: Started, *, patient: bool = False) -> AuthorizationResponse:
        """What somebody pastes. ``patient``: the end of the input is not the end of the wait."""
        own = started.redirect_uri != self._back.redirect_uri
        for left in reversed(range(_TRIES)):
            line = await line_while_running()
            if not line and patient:
                await asyncio.Event().wait()
            try:
                return read_pasted(
                    line, started.state, started.redirect_uri, needs_address=own or started.iss_promised
                )
            except WrongPaste as wrong:
                if not left or not line:
                    raise AuthError(str(wrong), hint="begin again, and paste the whole address") from None
                show_error(str(wrong), "paste the whole address that the browser ended on")
        raise AssertionError("the last try raises")
