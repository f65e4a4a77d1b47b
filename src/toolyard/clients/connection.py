"""One connection: a server and a principal, one owner task, one state, and calls that always end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import replace
from typing import Any

from toolyard.auth import AuthProvider
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connector import Dialer
from toolyard.clients.input_required import Rounds
from toolyard.clients.notification_stream import listen
from toolyard.clients.pagination import Listing, collect, header_rules
from toolyard.clients.server_secrets import hush, secrets_of
from toolyard.clients.session import Link, OnProgress, Patience
from toolyard.errors import (
    BadAnswer,
    HttpStatus,
    OutcomeUnknown,
    RpcError,
    ServerError,
    SessionLost,
    SignInNeeded,
    Throttled,
    Unreachable,
)
from toolyard.protocol.client import Facts
from toolyard.protocol.constants import HEADER_MISMATCH, UNSUPPORTED_VERSION
from toolyard.protocol.mirrored_headers import HeaderParam, param_headers
from toolyard.transports.stdio.stderr_tail import last_words
from toolyard.types.principal import Principal
from toolyard.types.server import Restart, Server, StdioSpec, Timeouts
from toolyard.types.status import State, Status

__all__ = ["Connection", "unused"]

log = logging.getLogger("toolyard.connection")

_BACKOFF = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each restart in a row. After the last one the crash loop is left alone."""
_STABLE = 60.0
"""Seconds of being ready after which earlier crashes no longer count."""


class Connection:
    """Connects when first used, recovers what can be recovered, and says what cannot.

    ``request`` may be called from any task and cancelled at any time; ``close`` ends everything in a
    bounded time. Each link is made, owned and closed by one task of ours, never by a caller.
    """

    def __init__(
        self,
        server: Server,
        principal: Principal,
        dialer: Dialer,
        on_told: Callable[[str, str, Mapping[str, Any]], None] | None = None,
        *,
        stop_when_idle: float | None = None,
        callbacks: Callbacks | None = None,
        apart: bool = False,
    ) -> None:
        """``stop_when_idle`` counts where the definition sets none. ``callbacks`` are its own, where what
        the server is told must not be what everyone else's connections tell it. ``apart``: what the server
        says between calls is heard in no caller's context, not even that of the first one."""
        self.server = server
        self._principal = principal
        self._dialer = dialer
        self._on_told = on_told
        self._secrets = secrets_of(server)
        self._callbacks = callbacks or dialer.callbacks
        self.offers = bool(self._callbacks.capabilities())
        """Whether its server is told that somebody here can do something for it."""
        self._apart = apart
        self._rounds = Rounds(server.id, self._callbacks)
        self._link: Link | None = None
        self._making: Link | None = None
        self._opening: asyncio.Future[Link] | None = None
        self._owners: set[asyncio.Task[None]] = set()
        """The one that connects or holds the link, and those that are still closing an earlier one."""
        self._connecting: asyncio.Task[None] | None = None
        self._leaving: set[Link] = set()
        """Replaced, and still used by calls that began on them."""
        self._rules: dict[str, tuple[HeaderParam, ...]] = {}
        self._dead: str | None = None
        self._crashes = 0
        self._restart: asyncio.TimerHandle | None = None
        self._floods = 0
        self._held_until = 0.0
        """No connect before this time, in seconds since the epoch: the server exceeded the traffic limits."""
        self._idle: asyncio.TimerHandle | None = None
        self._idle_after = stop_when_idle if server.stop_when_idle is None else server.stop_when_idle
        self._rested = 0.0
        """When the last call ended, on the clock of the event loop."""
        self._auth: AuthProvider | None = None
        self._status = unused(server, principal)
        self._state_since = time.monotonic()

    # What others call.

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = False,
        timeouts: Timeouts | None = None,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        log_level: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of one request; connects first where needed.

        ``repeatable``: executing it twice does no harm, so it is sent again when its outcome is
        unknown. ``capabilities`` are those of whoever it is for, as a modern server is told them; its
        questions are then theirs, and come back as the result. Raises a ServerError, always within the
        timeouts.
        """
        limits = timeouts or self.server.timeouts
        patience = Patience(limits.silence, limits.call)
        status = self._status
        tries = 0
        status.in_flight += 1
        try:
            while True:
                link = self._link
                if link is None or link.over:
                    link = await self._ready()
                status.last_call = time.time()
                link.users += 1
                try:
                    result = await self._rounds.request(
                        link,
                        method,
                        params,
                        patience,
                        progress=method == "tools/call",
                        on_progress=on_progress,
                        headers=self._headers(method, params) if self._rules else None,
                        meta=meta,
                        log_level=log_level,
                        capabilities=capabilities,
                    )
                except ServerError as error:
                    tries += 1
                    if tries > 1 or not await self._recovered(link, error, repeatable):
                        raise self._named(error) from error.__cause__
                else:
                    if status.state in (State.NEEDS_AUTH, State.FAILED) and self._link is link:
                        self._set(State.READY)
                    return result
                finally:
                    link.users -= 1
                    if link in self._leaving and link.users == 0:
                        link.on_lost(Unreachable("was replaced"))
        finally:
            status.in_flight -= 1
            if self._idle_after is not None and status.in_flight == 0:
                self._rest(self._idle_after)

    async def ready(self) -> Facts:
        """Connect where needed, and give what the server said about itself."""
        link = self._link
        if link is None or link.over:
            link = await self._ready()
        assert link.facts is not None
        return link.facts

    @property
    def facts(self) -> Facts | None:
        """What the server said about itself; None while it is not connected."""
        link = self._link
        return None if link is None else link.facts

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something, if it is connected and of the legacy era. Failures are nobody's
        concern."""
        link = self._link
        if link is not None and link.facts is not None and not link.facts.modern:
            link.notify(method, None if params is None else dict(params))

    async def list_tools(self) -> Listing:
        """All tools. Over HTTP in the modern era this also learns which parameters go into headers."""
        listing = await self.list_all("tools/list", "tools")
        link = self._link
        if link is not None and link.transport.uses_headers:
            self._rules = header_rules(listing)
        self._status.tool_count = len(listing.items)
        return listing

    async def list_all(self, method: str, key: str) -> Listing:
        """All pages of a list."""
        try:
            return await collect(method, key, lambda params: self.request(method, params, repeatable=True))
        except BadAnswer as error:
            raise self._named(error) from None

    def _headers(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str] | None:
        if method != "tools/call" or params is None:
            return None
        rules = self._rules.get(params.get("name", ""))
        return param_headers(rules, params.get("arguments") or {}) if rules else None

    @property
    def state(self) -> State:
        return self._status.state

    @property
    def lives(self) -> tuple[int, int]:
        """Another pair whenever the server may be another process than before: it was connected anew, or
        came back without a session that would tell."""
        link = self._link
        return self._status.connects, 0 if link is None else link.transport.facts().returns

    @property
    def since(self) -> float:
        """When it came into its state, in seconds since the epoch."""
        return self._status.since

    @property
    def spare(self) -> bool:
        """Nobody uses it and nothing is lost with it but a record: another one can be made in its place."""
        busy = self._status.in_flight or self._owners or self._link is not None or self._restart is not None
        return not busy and self._dead is None and time.time() >= self._held_until

    @property
    def rests_since(self) -> float | None:
        """Since when nobody uses what runs, by the clock of the loop; None where somebody does, nothing runs,
        or it is not stopped for that."""
        resting = self._idle_after is not None and self._link is not None and self._status.in_flight == 0
        return self._rested if resting else None

    async def stop(self) -> None:
        """Stop what rests, before its time. The next call connects."""
        if self._link is not None:
            self._stop(self._link)
        if self._owners:
            await asyncio.wait(self._owners)

    def status(self) -> Status:
        """A copy of the record."""
        record = self._status
        link = self._link or self._making
        if link is not None:
            facts = link.transport.facts()
            record.pid, record.stderr, record.noise = facts.pid, facts.stderr, facts.noise
        return replace(record)

    def note(self, **changes: Any) -> None:
        """Record what others learned, e.g. the number of tools."""
        for name, value in changes.items():
            setattr(self._status, name, value)

    @property
    def used(self) -> float:
        """When it was last used or changed its state, in seconds since the epoch."""
        return max(self._status.since, self._status.last_call or 0.0)

    async def restart(self) -> None:
        """Close what is there, forget why it failed and who we were. The next call connects."""
        await self._end("was restarted")
        self._crashes = self._floods = 0
        self._held_until = 0.0
        self._dead = None
        if self._status.state not in (State.DISABLED, State.CLOSED):
            self._status.restarts += 1
            self._set(State.IDLE)

    async def close(self) -> None:
        """Close for good. Of calls in flight the outcome is unknown."""
        if self._status.state is not State.DISABLED:
            self._set(State.CLOSED)
        await self._end("the connection is closed")

    def adopt(self, server: Server) -> None:
        """Take over a definition that differs in nothing that a connection goes by."""
        self.server = server

    # Connecting.

    async def _ready(self) -> Link:
        self._check()
        return await asyncio.shield(self._start())

    def _check(self) -> None:
        state = self._status.state
        if state is State.DISABLED:
            cause = self.server.disabled_reason or "is disabled"
            raise self._named(Unreachable(cause, hint="enable it in the configuration"))
        if state is State.CLOSED:
            raise self._named(Unreachable("the connection is closed"))
        if self._dead is not None:
            hint = 'restart it, or set "restart": "on-failure"'
            raise self._named(Unreachable(self._dead, hint=hint))
        if (left := self._held_until - time.time()) > 0:
            hint = f"it is connected again on the first call after {math.ceil(left)} s, or restart it"
            raise self._named(Unreachable(self._status.cause or "sent too much", hint=hint))

    def _start(self) -> asyncio.Future[Link]:
        """The one attempt to connect that everyone waits for."""
        if self._opening is None or self._opening.done():
            if self._restart is not None:
                self._restart.cancel()
                self._restart = None
            loop = asyncio.get_running_loop()
            self._opening = loop.create_future()
            # Nobody may be waiting any more when it fails.
            self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
            context = Context() if self._apart else None
            name = f"toolyard:{self.server.id}"
            owner = loop.create_task(self._own(self._opening), name=name, context=context)
            self._owners.add(owner)
            self._connecting = owner
            owner.add_done_callback(functools.partial(self._owner_done, self._opening))
        return self._opening

    def _owner_done(self, opening: asyncio.Future[Link], owner: asyncio.Task[None]) -> None:
        self._owners.discard(owner)
        if self._opening is opening:
            self._opening = None
        if not opening.done():
            # Cancelled, perhaps before it took its first step.
            opening.set_exception(self._named(Unreachable("the connection is closed")))

    async def _own(self, opening: asyncio.Future[Link]) -> None:
        """The owner: makes the link, waits for its end, closes it.

        Whoever waits is told before anything is closed, which may take a while.
        """
        begun: list[Link] = []
        try:
            link = await self._connect(begun)
            if self._opening is opening:
                self._opening = None
            self._become_ready(link)
            if link.ended.done():
                # Lost before it was ours to lose.
                self._became_lost(link, link.ended.result())
            opening.set_result(link)
            await link.ended
        except ServerError as error:
            self._failed(error)
            if any(link.flooded for link in begun):
                self._hold(error)
            opening.set_exception(self._named(error))
        except Exception as error:
            # The top of a task: a fault of ours must not leave anyone waiting.
            log.exception("server '%s': connecting failed in an unforeseen way", self.server.id)
            if not opening.done():
                failure = Unreachable(f"connecting failed in an unforeseen way: {error!r}")
                self._failed(failure)
                opening.set_exception(self._named(failure))
        finally:
            if self._opening in (opening, None):
                self._making = None
            for link in begun:
                if self._link is link:
                    self._link = None
                self._leaving.discard(link)
                await link.close()

    async def _connect(self, begun: list[Link]) -> Link:
        seconds = self.server.timeouts.connect
        self._set(State.CONNECTING)
        try:
            async with asyncio.timeout(seconds):
                return await self._dialer.dial(
                    self.server, functools.partial(self._began, begun), self._credentials(), self._callbacks
                )
        except TimeoutError:
            raise Unreachable(
                f"did not answer within {seconds:g} s{self._last_words()}",
                hint="raise 'timeouts.connect' if it needs longer to start",
            ) from None

    def _credentials(self) -> AuthProvider | None:
        """Asked for once: what it learned about tokens outlives the link."""
        if self._auth is None:
            self._auth = self._dialer.lookup_auth(self.server, self._principal)
        return self._auth

    def _began(self, begun: list[Link], link: Link) -> None:
        begun.append(link)
        if (told := self._on_told) is not None:
            link.on_told = functools.partial(told, self.server.id)
        link.on_over = self._became_lost
        self._making = link

    def _last_words(self) -> str:
        facts = self.status()
        if words := last_words(facts.stderr, 200):
            return f"; its last words: {words}"
        return f"; lines on its standard output that are no messages: {facts.noise}" if facts.noise else ""

    def _become_ready(self, link: Link) -> None:
        self._link, self._making = link, None
        callbacks = self._callbacks
        if self._on_told is not None or callbacks.notification is not None or callbacks.capabilities():
            listen(link)
        status = self._status
        self._set(State.READY)
        status.connects += 1
        if (facts := link.facts) is not None:
            status.protocol_version = facts.version
            status.server_info, status.capabilities = facts.info, facts.capabilities
            status.instructions = facts.instructions
        if self._idle_after is not None and status.in_flight == 0:
            self._rest(self._idle_after)

    # Losing.

    def _became_lost(self, link: Link, error: ServerError) -> None:
        if self._link is not link:
            return
        self.status()  # Keep what the transport knew: its last words outlive it.
        self._link = None
        if self._status.state is State.CLOSED:
            return
        ready_for = time.monotonic() - self._state_since
        if link.flooded:
            self._floods = 0 if ready_for > _STABLE else self._floods
            self._hold(error)
            return
        if not isinstance(self.server.transport, StdioSpec):
            self._set(State.IDLE, error)
            return
        self._set(State.FAILED, error)
        log.error("server '%s' %s", self.server.id, self._status.cause)
        if self.server.restart is Restart.NEVER:
            self._dead = error.cause
            return
        self._crashes = 0 if ready_for > _STABLE else self._crashes
        self._schedule_restart(error)

    def _hold(self, error: ServerError) -> None:
        """Stay disconnected for a while, longer each time. The next call after that connects."""
        pauses = self._dialer.traffic.pauses
        pause = pauses[min(self._floods, len(pauses) - 1)]
        self._floods += 1
        self._set(State.FAILED, error)
        self._status.next_retry = self._held_until = time.time() + pause
        log.error("server '%s' %s; not connected for %g s", self.server.id, self._status.cause, pause)

    def _schedule_restart(self, error: ServerError) -> None:
        if self._crashes >= len(_BACKOFF):
            self._dead = f"crashed {self._crashes + 1} times in a row; the last time it {error.cause}"
            self._set(State.FAILED, Unreachable(self._dead))
            return
        pause = _BACKOFF[self._crashes]
        self._crashes += 1
        self._status.restarts += 1
        self._status.next_retry = time.time() + pause
        self._restart = asyncio.get_running_loop().call_later(pause, self._start)

    def _failed(self, error: ServerError) -> None:
        self.status()
        if self._status.state is State.CLOSED:
            return
        self._set(State.NEEDS_AUTH if isinstance(error, SignInNeeded) else State.FAILED, error)
        log.warning("server '%s' cannot be used: %s", self.server.id, self._status.cause)
        if self._crashes and self.server.restart is Restart.ON_FAILURE:
            self._schedule_restart(error)

    async def _recovered(self, link: Link, error: ServerError, repeatable: bool) -> bool:
        """Whether the request may be sent once more, after making that possible."""
        unsupported = isinstance(error, RpcError) and error.code == UNSUPPORTED_VERSION
        if isinstance(error, SessionLost) or unsupported:
            self._drop(link, error)
            return True
        if isinstance(error, RpcError) and error.code == HEADER_MISMATCH:
            return await self._relearned()
        if isinstance(error, OutcomeUnknown):
            alive = self._dead is None and self._status.state is not State.CLOSED
            return repeatable and alive and not link.given_up
        if self._link is link and not link.over:
            if isinstance(error, SignInNeeded):
                self._set(State.NEEDS_AUTH, error)
            elif _is_down(error):
                # The link needs nothing to be used again, but whoever looks should see how the server is.
                self._set(State.FAILED, error)
        return False

    async def _relearned(self) -> bool:
        """The tool may mirror other parameters by now: list again, then try once more."""
        with contextlib.suppress(ServerError):
            await self.list_tools()
            return True
        return False

    def _drop(self, link: Link, error: ServerError) -> None:
        """Give up this link so that the next use makes a new one; only the first to notice does it.

        What others have running on it may still be answered.
        """
        if self._link is link:
            self._link = None
            self._leaving.add(link)
            self._set(State.IDLE, error)

    async def _end(self, reason: str) -> None:
        for timer in (self._restart, self._idle):
            if timer is not None:
                timer.cancel()
        self._restart = self._idle = None
        # Whoever connects from now on asks for credentials of its own.
        provider, self._auth = self._auth, None
        links = list(self._leaving)
        if self._link is not None:
            links.append(self._link)
            self._link = None
        for link in links:
            link.on_lost(Unreachable(reason))
        if self._opening is not None and not self._opening.done() and self._connecting is not None:
            self._connecting.cancel()
        try:
            if self._owners:
                await asyncio.wait(self._owners)
        finally:
            # After the links: closing a session is a request that needs credentials too.
            close: Callable[[], Awaitable[None]] | None = getattr(provider, "close", None)
            if close is not None:
                await close()

    def _rest(self, seconds: float) -> None:
        """Nobody calls: stop after a while."""
        loop = asyncio.get_running_loop()
        self._rested = loop.time()
        # One timer looks again when it ends, instead of a new one for each call.
        if self._idle is None:
            self._idle = loop.call_later(seconds, self._stop_if_idle, seconds)

    def _stop_if_idle(self, seconds: float) -> None:
        self._idle = None
        if self._status.in_flight or self._link is None:
            return
        loop = asyncio.get_running_loop()
        left = self._rested + seconds - loop.time()
        if left > 0:
            self._idle = loop.call_later(left, self._stop_if_idle, seconds)
            return
        self._stop(self._link)

    def _stop(self, link: Link) -> None:
        self._link = None
        self._set(State.IDLE)
        link.on_lost(Unreachable("was stopped because nobody used it"))

    # The record.

    def _set(self, state: State, error: ServerError | None = None) -> None:
        status = self._status
        status.state, status.since = state, time.time()
        self._state_since = time.monotonic()
        if error is not None:
            hush(error, self._secrets)
            status.cause, status.reason, status.hint = error.cause, error.kind, error.hint
        else:
            status.cause = status.reason = status.hint = None
        status.next_retry = None
        if state is not State.READY:
            status.pid = None

    def _named(self, error: ServerError) -> ServerError:
        hush(error, self._secrets)
        error.server = self.server.id
        return error


def _is_down(error: ServerError) -> bool:
    """Whether a server cannot be used at all, as it or the proxy before it says."""
    if isinstance(error, HttpStatus):
        return error.status in (502, 503, 504)
    return isinstance(error, Unreachable) and not isinstance(error, Throttled)


def unused(server: Server, principal: Principal) -> Status:
    """The record of a connection that was never used."""
    state = State.IDLE if server.enabled else State.DISABLED
    cause = server.disabled_reason
    reason = None if cause is None else "disabled"
    return Status(server.id, principal.id, state, time.time(), cause=cause, reason=reason)
