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
from toolyard.clients.connector import Connector
from toolyard.clients.input_required import InputRequiredLoop
from toolyard.clients.notification_stream import start_listening
from toolyard.clients.pagination import PagedList, collect_pages, extract_header_params
from toolyard.clients.server_secrets import find_secrets, redact_error
from toolyard.clients.session import Deadline, McpSession, OnProgress
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
from toolyard.protocol.client import HandshakeResult
from toolyard.protocol.constants import HEADER_MISMATCH, UNSUPPORTED_VERSION
from toolyard.protocol.mirrored_headers import HeaderParam, build_param_headers
from toolyard.transports.stdio.stderr_tail import find_failure_line
from toolyard.types.principal import Principal
from toolyard.types.server import RestartPolicy, Server, StdioSpec, Timeouts
from toolyard.types.status import State, Status

__all__ = ["Connection", "initial_status"]

log = logging.getLogger("toolyard.connection")

_RESTART_DELAYS_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each restart in a row. After the last one the crash loop is left alone."""
_STABLE_AFTER_SECONDS = 60.0
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
        connector: Connector,
        on_notification: Callable[[str, str, Mapping[str, Any]], None] | None = None,
        *,
        stop_when_idle: float | None = None,
        callbacks: Callbacks | None = None,
        isolated_context: bool = False,
    ) -> None:
        """``stop_when_idle`` counts where the definition sets none. ``callbacks`` are its own, where what
        the server is told must not be what everyone else's connections tell it. ``apart``: what the server
        says between calls is heard in no caller's context, not even that of the first one."""
        self.server = server
        self._principal = principal
        self._connector = connector
        self._on_notification = on_notification
        self._secrets = find_secrets(server)
        self._callbacks = callbacks or connector.callbacks
        self.offers = bool(self._callbacks.capabilities())
        """Whether its server is told that somebody here can do something for it."""
        self._isolated_context = isolated_context
        self._input_required_loop = InputRequiredLoop(server.id, self._callbacks)
        self._session: McpSession | None = None
        self._new_session: McpSession | None = None
        self._session_future: asyncio.Future[McpSession] | None = None
        self._owner_tasks: set[asyncio.Task[None]] = set()
        """The one that connects or holds the link, and those that are still closing an earlier one."""
        self._connect_task: asyncio.Task[None] | None = None
        self._replaced_sessions: set[McpSession] = set()
        """Replaced, and still used by calls that began on them."""
        self._header_params: dict[str, tuple[HeaderParam, ...]] = {}
        self._permanent_failure: str | None = None
        self._crash_count = 0
        self._restart_timer: asyncio.TimerHandle | None = None
        self._flood_count = 0
        self._blocked_until = 0.0
        """No connect before this time, in seconds since the epoch: the server exceeded the traffic limits."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_timeout = stop_when_idle if server.stop_when_idle is None else server.stop_when_idle
        self._idle_since = 0.0
        """When the last call ended, on the clock of the event loop."""
        self._auth_provider: AuthProvider | None = None
        self._status = initial_status(server, principal)
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
        patience = Deadline(limits.silence, limits.call)
        status = self._status
        tries = 0
        status.in_flight += 1
        try:
            while True:
                link = self._session
                if link is None or link.is_over:
                    link = await self._ensure_session()
                status.last_call = time.time()
                link.users += 1
                try:
                    result = await self._input_required_loop.request(
                        link,
                        method,
                        params,
                        patience,
                        progress=method == "tools/call",
                        on_progress=on_progress,
                        headers=self._build_param_headers(method, params) if self._header_params else None,
                        meta=meta,
                        log_level=log_level,
                        capabilities=capabilities,
                    )
                except ServerError as error:
                    tries += 1
                    if tries > 1 or not await self._recover_for_retry(link, error, repeatable):
                        raise self._with_server_id(error) from error.__cause__
                else:
                    if status.state in (State.NEEDS_AUTH, State.FAILED) and self._session is link:
                        self._set_state(State.READY)
                    return result
                finally:
                    link.users -= 1
                    if link in self._replaced_sessions and link.users == 0:
                        link.on_lost(Unreachable("was replaced"))
        finally:
            status.in_flight -= 1
            if self._idle_timeout is not None and status.in_flight == 0:
                self._start_idle_timer(self._idle_timeout)

    async def ensure_connected(self) -> HandshakeResult:
        """Connect where needed, and give what the server said about itself."""
        link = self._session
        if link is None or link.is_over:
            link = await self._ensure_session()
        assert link.handshake_result is not None
        return link.handshake_result

    @property
    def handshake_result(self) -> HandshakeResult | None:
        """What the server said about itself; None while it is not connected."""
        link = self._session
        return None if link is None else link.handshake_result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something, if it is connected and of the legacy era. Failures are nobody's
        concern."""
        link = self._session
        if link is not None and link.handshake_result is not None and not link.handshake_result.modern:
            link.notify(method, None if params is None else dict(params))

    async def list_tools(self) -> PagedList:
        """All tools. Over HTTP in the modern era this also learns which parameters go into headers."""
        listing = await self.list_all("tools/list", "tools")
        link = self._session
        if link is not None and link.transport.mirrors_headers:
            self._header_params = extract_header_params(listing)
        self._status.tool_count = len(listing.items)
        return listing

    async def list_all(self, method: str, key: str) -> PagedList:
        """All pages of a list."""
        try:
            return await collect_pages(
                method, key, lambda params: self.request(method, params, repeatable=True)
            )
        except BadAnswer as error:
            raise self._with_server_id(error) from None

    def _build_param_headers(self, method: str, params: Mapping[str, Any] | None) -> dict[str, str] | None:
        if method != "tools/call" or params is None:
            return None
        rules = self._header_params.get(params.get("name", ""))
        return build_param_headers(rules, params.get("arguments") or {}) if rules else None

    @property
    def state(self) -> State:
        return self._status.state

    @property
    def lives(self) -> tuple[int, int]:
        """Another pair whenever the server may be another process than before: it was connected anew, or
        came back without a session that would tell."""
        link = self._session
        return self._status.connects, 0 if link is None else link.transport.get_info().stream_reconnects

    @property
    def since(self) -> float:
        """When it came into its state, in seconds since the epoch."""
        return self._status.since

    @property
    def is_disposable(self) -> bool:
        """Nobody uses it and nothing is lost with it but a record: another one can be made in its place."""
        busy = (
            self._status.in_flight
            or self._owner_tasks
            or self._session is not None
            or self._restart_timer is not None
        )
        return not busy and self._permanent_failure is None and time.time() >= self._blocked_until

    @property
    def idle_since(self) -> float | None:
        """Since when nobody uses what runs, by the clock of the loop; None where somebody does, nothing runs,
        or it is not stopped for that."""
        resting = self._idle_timeout is not None and self._session is not None and self._status.in_flight == 0
        return self._idle_since if resting else None

    async def stop_idle(self) -> None:
        """Stop what rests, before its time. The next call connects."""
        if self._session is not None:
            self._stop_session(self._session)
        if self._owner_tasks:
            await asyncio.wait(self._owner_tasks)

    def status(self) -> Status:
        """A copy of the record."""
        record = self._status
        link = self._session or self._new_session
        if link is not None:
            facts = link.transport.get_info()
            record.pid, record.stderr, record.noise = facts.pid, facts.stderr, facts.skipped_lines
        return replace(record)

    def update_status(self, **changes: Any) -> None:
        """Record what others learned, e.g. the number of tools."""
        for name, value in changes.items():
            setattr(self._status, name, value)

    @property
    def last_used(self) -> float:
        """When it was last used or changed its state, in seconds since the epoch."""
        return max(self._status.since, self._status.last_call or 0.0)

    async def restart(self) -> None:
        """Close what is there, forget why it failed and who we were. The next call connects."""
        await self._end_sessions("was restarted")
        self._crash_count = self._flood_count = 0
        self._blocked_until = 0.0
        self._permanent_failure = None
        if self._status.state not in (State.DISABLED, State.CLOSED):
            self._status.restarts += 1
            self._set_state(State.IDLE)

    async def close(self) -> None:
        """Close for good. Of calls in flight the outcome is unknown."""
        if self._status.state is not State.DISABLED:
            self._set_state(State.CLOSED)
        await self._end_sessions("the connection is closed")

    def replace_definition(self, server: Server) -> None:
        """Take over a definition that differs in nothing that a connection goes by."""
        self.server = server

    # Connecting.

    async def _ensure_session(self) -> McpSession:
        self._check_usable()
        return await asyncio.shield(self._start_connecting())

    def _check_usable(self) -> None:
        state = self._status.state
        if state is State.DISABLED:
            cause = self.server.disabled_reason or "is disabled"
            raise self._with_server_id(Unreachable(cause, hint="enable it in the configuration"))
        if state is State.CLOSED:
            raise self._with_server_id(Unreachable("the connection is closed"))
        if self._permanent_failure is not None:
            hint = 'restart it, or set "restart": "on-failure"'
            raise self._with_server_id(Unreachable(self._permanent_failure, hint=hint))
        if (left := self._blocked_until - time.time()) > 0:
            hint = f"it is connected again on the first call after {math.ceil(left)} s, or restart it"
            raise self._with_server_id(Unreachable(self._status.cause or "sent too much", hint=hint))

    def _start_connecting(self) -> asyncio.Future[McpSession]:
        """The one attempt to connect that everyone waits for."""
        if self._session_future is None or self._session_future.done():
            if self._restart_timer is not None:
                self._restart_timer.cancel()
                self._restart_timer = None
            loop = asyncio.get_running_loop()
            self._session_future = loop.create_future()
            # Nobody may be waiting any more when it fails.
            self._session_future.add_done_callback(lambda done: done.cancelled() or done.exception())
            context = Context() if self._isolated_context else None
            name = f"toolyard:{self.server.id}"
            owner = loop.create_task(self._run_session(self._session_future), name=name, context=context)
            self._owner_tasks.add(owner)
            self._connect_task = owner
            owner.add_done_callback(functools.partial(self._on_owner_done, self._session_future))
        return self._session_future

    def _on_owner_done(
        self, session_future: asyncio.Future[McpSession], owner_task: asyncio.Task[None]
    ) -> None:
        self._owner_tasks.discard(owner_task)
        if self._session_future is session_future:
            self._session_future = None
        if not session_future.done():
            # Cancelled, perhaps before it took its first step.
            session_future.set_exception(self._with_server_id(Unreachable("the connection is closed")))

    async def _run_session(self, session_future: asyncio.Future[McpSession]) -> None:
        """The owner: makes the link, waits for its end, closes it.

        Whoever waits is told before anything is closed, which may take a while.
        """
        begun: list[McpSession] = []
        try:
            link = await self._open_session(begun)
            if self._session_future is session_future:
                self._session_future = None
            self._set_ready(link)
            if link.end_future.done():
                # Lost before it was ours to lose.
                self._on_session_lost(link, link.end_future.result())
            session_future.set_result(link)
            await link.end_future
        except ServerError as error:
            self._on_connect_failed(error)
            if any(link.has_exceeded_traffic_limits for link in begun):
                self._block_after_flood(error)
            session_future.set_exception(self._with_server_id(error))
        except Exception as error:
            # The top of a task: a fault of ours must not leave anyone waiting.
            log.exception("server '%s': connecting failed in an unforeseen way", self.server.id)
            if not session_future.done():
                failure = Unreachable(f"connecting failed in an unforeseen way: {error!r}")
                self._on_connect_failed(failure)
                session_future.set_exception(self._with_server_id(failure))
        finally:
            if self._session_future in (session_future, None):
                self._new_session = None
            for link in begun:
                if self._session is link:
                    self._session = None
                self._replaced_sessions.discard(link)
                await link.close()

    async def _open_session(self, created_sessions: list[McpSession]) -> McpSession:
        seconds = self.server.timeouts.connect
        self._set_state(State.CONNECTING)
        try:
            async with asyncio.timeout(seconds):
                return await self._connector.connect(
                    self.server,
                    functools.partial(self._on_session_created, created_sessions),
                    self._get_auth_provider(),
                    self._callbacks,
                )
        except TimeoutError:
            raise Unreachable(
                f"did not answer within {seconds:g} s{self._describe_last_output()}",
                hint="raise 'timeouts.connect' if it needs longer to start",
            ) from None

    def _get_auth_provider(self) -> AuthProvider | None:
        """Asked for once: what it learned about tokens outlives the link."""
        if self._auth_provider is None:
            self._auth_provider = self._connector.find_auth_provider(self.server, self._principal)
        return self._auth_provider

    def _on_session_created(self, created_sessions: list[McpSession], session: McpSession) -> None:
        created_sessions.append(session)
        if (told := self._on_notification) is not None:
            session.on_notification = functools.partial(told, self.server.id)
        session.on_end = self._on_session_lost
        self._new_session = session

    def _describe_last_output(self) -> str:
        facts = self.status()
        if words := find_failure_line(facts.stderr, 200):
            return f"; its last words: {words}"
        return f"; lines on its standard output that are no messages: {facts.noise}" if facts.noise else ""

    def _set_ready(self, session: McpSession) -> None:
        self._session, self._new_session = session, None
        callbacks = self._callbacks
        if (
            self._on_notification is not None
            or callbacks.notification is not None
            or callbacks.capabilities()
        ):
            start_listening(session)
        status = self._status
        self._set_state(State.READY)
        status.connects += 1
        if (facts := session.handshake_result) is not None:
            status.protocol_version = facts.version
            status.server_info, status.capabilities = facts.info, facts.capabilities
            status.instructions = facts.instructions
        if self._idle_timeout is not None and status.in_flight == 0:
            self._start_idle_timer(self._idle_timeout)

    # Losing.

    def _on_session_lost(self, session: McpSession, error: ServerError) -> None:
        if self._session is not session:
            return
        self.status()  # Keep what the transport knew: its last words outlive it.
        self._session = None
        if self._status.state is State.CLOSED:
            return
        ready_for = time.monotonic() - self._state_since
        if session.has_exceeded_traffic_limits:
            self._flood_count = 0 if ready_for > _STABLE_AFTER_SECONDS else self._flood_count
            self._block_after_flood(error)
            return
        if not isinstance(self.server.transport, StdioSpec):
            self._set_state(State.IDLE, error)
            return
        self._set_state(State.FAILED, error)
        log.error("server '%s' %s", self.server.id, self._status.cause)
        if self.server.restart is RestartPolicy.NEVER:
            self._permanent_failure = error.cause
            return
        self._crash_count = 0 if ready_for > _STABLE_AFTER_SECONDS else self._crash_count
        self._schedule_restart(error)

    def _block_after_flood(self, error: ServerError) -> None:
        """Stay disconnected for a while, longer each time. The next call after that connects."""
        pauses = self._connector.traffic_limits.reconnect_delays
        pause = pauses[min(self._flood_count, len(pauses) - 1)]
        self._flood_count += 1
        self._set_state(State.FAILED, error)
        self._status.next_retry = self._blocked_until = time.time() + pause
        log.error("server '%s' %s; not connected for %g s", self.server.id, self._status.cause, pause)

    def _schedule_restart(self, error: ServerError) -> None:
        if self._crash_count >= len(_RESTART_DELAYS_SECONDS):
            self._permanent_failure = (
                f"crashed {self._crash_count + 1} times in a row; the last time it {error.cause}"
            )
            self._set_state(State.FAILED, Unreachable(self._permanent_failure))
            return
        pause = _RESTART_DELAYS_SECONDS[self._crash_count]
        self._crash_count += 1
        self._status.restarts += 1
        self._status.next_retry = time.time() + pause
        self._restart_timer = asyncio.get_running_loop().call_later(pause, self._start_connecting)

    def _on_connect_failed(self, error: ServerError) -> None:
        self.status()
        if self._status.state is State.CLOSED:
            return
        self._set_state(State.NEEDS_AUTH if isinstance(error, SignInNeeded) else State.FAILED, error)
        log.warning("server '%s' cannot be used: %s", self.server.id, self._status.cause)
        if self._crash_count and self.server.restart is RestartPolicy.ON_FAILURE:
            self._schedule_restart(error)

    async def _recover_for_retry(self, session: McpSession, error: ServerError, repeatable: bool) -> bool:
        """Whether the request may be sent once more, after making that possible."""
        unsupported = isinstance(error, RpcError) and error.code == UNSUPPORTED_VERSION
        if isinstance(error, SessionLost) or unsupported:
            self._retire_session(session, error)
            return True
        if isinstance(error, RpcError) and error.code == HEADER_MISMATCH:
            return await self._refresh_header_params()
        if isinstance(error, OutcomeUnknown):
            alive = self._permanent_failure is None and self._status.state is not State.CLOSED
            return repeatable and alive and not session.is_closed_by_us
        if self._session is session and not session.is_over:
            if isinstance(error, SignInNeeded):
                self._set_state(State.NEEDS_AUTH, error)
            elif _is_server_down(error):
                # The link needs nothing to be used again, but whoever looks should see how the server is.
                self._set_state(State.FAILED, error)
        return False

    async def _refresh_header_params(self) -> bool:
        """The tool may mirror other parameters by now: list again, then try once more."""
        with contextlib.suppress(ServerError):
            await self.list_tools()
            return True
        return False

    def _retire_session(self, session: McpSession, error: ServerError) -> None:
        """Give up this link so that the next use makes a new one; only the first to notice does it.

        What others have running on it may still be answered.
        """
        if self._session is session:
            self._session = None
            self._replaced_sessions.add(session)
            self._set_state(State.IDLE, error)

    async def _end_sessions(self, reason: str) -> None:
        for timer in (self._restart_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._restart_timer = self._idle_timer = None
        # Whoever connects from now on asks for credentials of its own.
        provider, self._auth_provider = self._auth_provider, None
        links = list(self._replaced_sessions)
        if self._session is not None:
            links.append(self._session)
            self._session = None
        for link in links:
            link.on_lost(Unreachable(reason))
        if (
            self._session_future is not None
            and not self._session_future.done()
            and self._connect_task is not None
        ):
            self._connect_task.cancel()
        try:
            if self._owner_tasks:
                await asyncio.wait(self._owner_tasks)
        finally:
            # After the links: closing a session is a request that needs credentials too.
            close: Callable[[], Awaitable[None]] | None = getattr(provider, "close", None)
            if close is not None:
                await close()

    def _start_idle_timer(self, seconds: float) -> None:
        """Nobody calls: stop after a while."""
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        # One timer looks again when it ends, instead of a new one for each call.
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(seconds, self._stop_if_idle, seconds)

    def _stop_if_idle(self, seconds: float) -> None:
        self._idle_timer = None
        if self._status.in_flight or self._session is None:
            return
        loop = asyncio.get_running_loop()
        left = self._idle_since + seconds - loop.time()
        if left > 0:
            self._idle_timer = loop.call_later(left, self._stop_if_idle, seconds)
            return
        self._stop_session(self._session)

    def _stop_session(self, session: McpSession) -> None:
        self._session = None
        self._set_state(State.IDLE)
        session.on_lost(Unreachable("was stopped because nobody used it"))

    # The record.

    def _set_state(self, state: State, error: ServerError | None = None) -> None:
        status = self._status
        status.state, status.since = state, time.time()
        self._state_since = time.monotonic()
        if error is not None:
            redact_error(error, self._secrets)
            status.cause, status.reason, status.hint = error.cause, error.kind, error.hint
        else:
            status.cause = status.reason = status.hint = None
        status.next_retry = None
        if state is not State.READY:
            status.pid = None

    def _with_server_id(self, error: ServerError) -> ServerError:
        redact_error(error, self._secrets)
        error.server = self.server.id
        return error


def _is_server_down(error: ServerError) -> bool:
    """Whether a server cannot be used at all, as it or the proxy before it says."""
    if isinstance(error, HttpStatus):
        return error.status in (502, 503, 504)
    return isinstance(error, Unreachable) and not isinstance(error, Throttled)


def initial_status(server: Server, principal: Principal) -> Status:
    """The record of a connection that was never used."""
    state = State.IDLE if server.enabled else State.DISABLED
    cause = server.disabled_reason
    reason = None if cause is None else "disabled"
    return Status(server.id, principal.id, state, time.time(), cause=cause, reason=reason)
