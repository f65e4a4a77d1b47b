"""Connection of one server and one principal: lazy connect, recovery, idle stop, and status."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from toolyard.auth import AuthProvider
from toolyard.clients.backoff import Backoff, IdleTimer
from toolyard.clients.callbacks import Callbacks
from toolyard.clients.connection_clients import ConnectionClients
from toolyard.clients.connector import Connector, connect_timeout_hint, describe_server
from toolyard.clients.input_required import InputRequiredLoop
from toolyard.clients.notification_stream import start_listening
from toolyard.clients.pagination import PagedList, collect_pages, extract_header_params
from toolyard.clients.secret_redaction import find_secrets, redact_error
from toolyard.clients.session import McpSession
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
from toolyard.protocol.constants import HEADER_MISMATCH, UNSUPPORTED_VERSION
from toolyard.protocol.handshake import HandshakeResult
from toolyard.protocol.mirrored_headers import HeaderParam, build_param_headers
from toolyard.results.json_size import is_large
from toolyard.results.redaction import redact_known_secrets
from toolyard.transports.transport import find_failure_line
from toolyard.types.account import Principal
from toolyard.types.call import McpRequest, RequestClient
from toolyard.types.server import RestartPolicy, Server, State, Status, StdioSpec, Timeouts

__all__ = ["Connection", "initial_status"]

log = logging.getLogger("toolyard.connection")

_ROOTS_HINT = 'set "sessions": "per-client", and each client gets a process that knows its roots'


class Connection:
    """Connects on first use, reconnects where it is safe, and reports failures in its status.

    ``request`` may be called from any task and cancelled at any time; ``close`` takes a bounded time. Each
    session is opened, owned and closed by one owner task, never by a caller, so that
    cancelling one caller cannot tear down a session that others use.
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
        serves_clients: bool = False,
    ) -> None:
        """Create an unconnected connection.

        ``stop_when_idle`` (seconds) applies if the server definition sets none. ``callbacks`` replace those
        of the connector, for connections that must offer the server other capabilities. With
        ``isolated_context`` the owner task runs in an empty context, so that notifications between calls are
        not handled in the context variables of the caller that happened to connect first.
        ``serves_clients`` is set if requests of several clients use it, each with its own capabilities.
        """
        self.server = server
        self._principal = principal
        self._connector = connector
        self._on_notification = on_notification
        self._secrets = find_secrets(server)
        self._callbacks = callbacks or connector.callbacks
        self._isolated_context = isolated_context
        self.serves_clients = serves_clients
        self._input_required_loop = InputRequiredLoop(server.id, self._callbacks)
        self.clients = ConnectionClients(connector.connection_limits)
        self._has_asked_for_roots = False
        self._log_level: tuple[int, str] | None = None
        """The log level that was set, with the number of the connect after which it was set."""
        self._session: McpSession | None = None
        self._new_session: McpSession | None = None
        self._session_future: asyncio.Future[McpSession] | None = None
        self._owner_tasks: set[asyncio.Task[None]] = set()
        """The task that connects or holds the session, and tasks that are still closing earlier sessions."""
        self._connect_task: asyncio.Task[None] | None = None
        self._replaced_sessions: set[McpSession] = set()
        """Retired sessions with calls still running on them."""
        self._header_params: dict[str, tuple[HeaderParam, ...]] = {}
        self._backoff = Backoff(
            connector.traffic_limits.reconnect_delays, connector.connection_limits.restart_delays
        )
        self._logged_cause: str | None = None
        """Cause of the last failed attempt, which is in the log already."""
        self._restart_timer: asyncio.TimerHandle | None = None
        seconds = stop_when_idle if server.stop_when_idle is None else server.stop_when_idle
        self._idle_timer = None if seconds is None else IdleTimer(seconds)
        self._auth_provider: AuthProvider | None = None
        self._status = initial_status(server, principal)
        self._state_since = time.monotonic()

    # Public interface.

    async def request(self, request: McpRequest) -> dict[str, Any]:
        """Return the result of one request; connect first if needed. Raise a ServerError, always within the
        timeouts."""
        timeouts = request.timeouts or self.server.timeouts
        status, client = self._status, request.client
        tries = 0
        status.in_flight += 1
        try:
            while True:
                session = self._session
                if session is None or session.is_over:
                    session = await self._ensure_session()
                status.last_call = time.time()
                session.active_calls += 1
                try:
                    if client is not None and (client.key or client.log_level or client.round_params):
                        request = await self._adapt_request(session, request, client)
                    headers = self._build_param_headers(request) if self._header_params else None
                    result = await session.request(request, timeouts, headers)
                    kind = result.get("resultType")
                    if kind is not None and kind != "complete":
                        result = await self._complete_result(session, request, result, timeouts, headers)
                except ServerError as error:
                    tries += 1
                    # One repetition at most: a server that loses every session would otherwise be asked
                    # without end.
                    if tries > 1 or not await self._recover_for_retry(session, error, request.repeatable):
                        raise self._with_server_id(error) from error.__cause__
                else:
                    if result.get("isError") is True:
                        redact = functools.partial(redact_known_secrets, result, self._known_secrets)
                        result = await asyncio.to_thread(redact) if is_large(result) else redact()
                    # A refusal of one call had changed the state (see _recover_for_retry). A success on the
                    # same session proves that the server works again.
                    if status.state in (State.NEEDS_AUTH, State.FAILED) and self._session is session:
                        self._set_state(State.READY)
                    return result
                finally:
                    session.active_calls -= 1
                    if session in self._replaced_sessions and session.active_calls == 0:
                        # The last call on a retired session has ended: its owner task can close it now.
                        session.on_lost(Unreachable("was replaced"))
        finally:
            status.in_flight -= 1
            if client is not None:
                self.clients.on_request_end(client)
            if (timer := self._idle_timer) is not None and status.in_flight == 0:
                timer.idle_since = time.monotonic()
                if not timer.is_running:
                    timer.start(self._stop_if_idle)

    async def _adapt_request(
        self, session: McpSession, request: McpRequest, client: RequestClient
    ) -> McpRequest:
        """Return the request with the client's parameters, and apply the log level of the client."""
        self.clients.add(client)
        if client.log_level is not None and not self.server.shared:
            self.clients.add_log_receiver(client)
            await self._set_log_level(session)
        handshake = session.handshake_result
        if client.round_params and handshake is not None and handshake.era.asks_in_results:
            request = replace(request, params={**(request.params or {}), **client.round_params})
        return request

    async def _complete_result(
        self,
        session: McpSession,
        request: McpRequest,
        result: dict[str, Any],
        timeouts: Timeouts,
        headers: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        """Return the result of a request that was answered with a question from a modern server."""
        client = request.client
        if client is None:
            loop = self._input_required_loop
        elif client.on_input_required is not None and result.get("resultType") == "input_required":
            return client.on_input_required(self.server.id, result)
        else:
            loop = InputRequiredLoop(self.server.id, Callbacks.from_client(client))
        return await loop.complete(session, request, result, timeouts, headers)

    async def _set_log_level(self, session: McpSession) -> None:
        """Set the finest level that a client wants on a server with sessions, once per session."""
        level = (self._status.connects, self.clients.finest_log_level())
        if self._log_level == level:
            return
        self._log_level = level
        handshake = session.handshake_result
        if handshake is not None and handshake.era.has_sessions and "logging" in handshake.capabilities:
            request = McpRequest("logging/setLevel", {"level": level[1]})
            # A server that cannot set a level logs as it likes; messages are filtered for each client.
            with contextlib.suppress(ServerError):
                await session.request(request, self.server.timeouts)

    async def ensure_connected(self) -> HandshakeResult:
        """Connect if needed and return the handshake result."""
        session = self._session
        if session is None or session.is_over:
            session = await self._ensure_session()
        assert session.handshake_result is not None
        return session.handshake_result

    def list_client_names(self) -> list[str]:
        """Return the names of the clients that use the connection, sorted."""
        session = self._session
        return self.clients.list_names(() if session is None else session.list_clients())

    @property
    def offered_capabilities(self) -> Mapping[str, Any]:
        """Client capabilities that the server is offered when it connects."""
        return self._callbacks.capabilities()

    @property
    def handshake_result(self) -> HandshakeResult | None:
        """Result of the handshake, or None while not connected."""
        session = self._session
        return None if session is None else session.handshake_result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification in the background, if there is a session that it belongs to. Failures are only
        logged."""
        session = self._session
        if (
            session is not None
            and session.handshake_result is not None
            and session.handshake_result.era.has_sessions
        ):
            session.notify(method, None if params is None else dict(params))

    async def list_tools(self) -> PagedList:
        """Return all tools. Where headers mirror parameters, this also records which."""
        listing = await self.list_all("tools/list", "tools")
        session = self._session
        if session is not None and session.transport.mirrors_headers:
            # In a thread, because the schemas of a server may hold a million values.
            self._header_params = await asyncio.to_thread(extract_header_params, listing)
        self._status.tool_count = len(listing.items)
        return listing

    async def list_all(self, method: str, key: str) -> PagedList:
        """Return all pages of a list as one, up to the limits of ``collect_pages``."""
        try:
            listing = await collect_pages(
                method, key, lambda params: self.request(McpRequest(method, params, repeatable=True))
            )
        except BadAnswer as error:
            raise self._with_server_id(error) from None
        for warning in listing.warnings:
            log.warning("server '%s': %s", self.server.id, warning)
        return listing

    def _build_param_headers(self, request: McpRequest) -> dict[str, str] | None:
        params = request.params
        if request.method != "tools/call" or params is None:
            return None
        rules = self._header_params.get(params.get("name", ""))
        return build_param_headers(rules, params.get("arguments") or {}) if rules else None

    @property
    def state(self) -> State:
        return self._status.state

    @property
    def generation(self) -> tuple[int, int]:
        """Pair of counters that changes whenever the server may be another process than before: after a new
        connect, or after its stream was re-established without a session id that proves continuity."""
        session = self._session
        return self._status.connects, 0 if session is None else session.transport.get_info().stream_reconnects

    @property
    def state_since(self) -> float:
        """Time of the last state change, in seconds since the epoch."""
        return self._status.since

    @property
    def is_disposable(self) -> bool:
        """True if the connection is unused and only its status would be lost with it."""
        busy = (
            self._status.in_flight
            or self._owner_tasks
            or self._session is not None
            or self._restart_timer is not None
        )
        return not busy and self._backoff.permanent_failure is None and self._backoff.blocked_seconds <= 0

    @property
    def idle_since(self) -> float | None:
        """Time since which a running session is idle, on the monotonic clock. None if it is in use,
        not running, or not subject to the idle timeout."""
        if self._idle_timer is None or self._session is None or self._status.in_flight:
            return None
        return self._idle_timer.idle_since

    async def stop_idle(self) -> None:
        """Stop an idle session before its timeout. The next call connects again."""
        # The owner task closes the session. It is awaited, because the caller needs the process to be gone:
        # it is about to start another one in its place.
        if self._session is not None:
            self._stop_session(self._session)
        if self._owner_tasks:
            await asyncio.wait(self._owner_tasks)

    @property
    def pid(self) -> int | None:
        """Id of the server's process while it is connected."""
        return None if self._session is None else self._session.transport.get_info().pid

    def status(self) -> Status:
        """Return a copy of the current status."""
        record = self._status
        session = self._session or self._new_session
        if session is not None:
            info = session.transport.get_info()
            record.pid, record.stderr, record.noise = info.pid, info.stderr, info.skipped_lines
        return replace(record)

    @property
    def last_used(self) -> float:
        """Time of the last call or state change, in seconds since the epoch."""
        return max(self._status.since, self._status.last_call or 0.0)

    async def restart(self) -> None:
        """Close the session and forget earlier failures and credentials. The next call connects again."""
        await self._end_sessions("was restarted")
        self._backoff.reset()
        if self.server.enabled and self._status.state is not State.CLOSED:
            self._status.restarts += 1
            self._set_state(State.IDLE)

    async def close(self) -> None:
        """Close for good. Calls in flight fail with OutcomeUnknown."""
        # Set before the first await, so that no call can connect again while the sessions are closing.
        if self.server.enabled:
            self._set_state(State.CLOSED)
        await self._end_sessions("the connection is closed")

    def replace_definition(self, server: Server) -> None:
        """Use a new definition that differs only in fields that do not affect the connection."""
        self.server = server

    # Connecting.

    async def _ensure_session(self) -> McpSession:
        self._check_usable()
        # Shielded: cancelling one caller must not cancel the attempt that other callers wait for.
        return await asyncio.shield(self._start_connecting())

    def _check_usable(self) -> None:
        state = self._status.state
        if not self.server.enabled:
            cause = self.server.disabled_reason or "is disabled"
            hint = self.server.problem_hint if self.server.problems else "enable it in the configuration"
            raise self._with_server_id(Unreachable(cause, hint=hint))
        if state is State.CLOSED:
            raise self._with_server_id(Unreachable("the connection is closed"))
        if (failure := self._backoff.permanent_failure) is not None:
            hint = 'restart the server, or set "restart": "on-failure"'
            if self.server.restart is RestartPolicy.ON_FAILURE:
                hint = "read the server's last output, correct the cause, then restart the server"
            raise self._with_server_id(Unreachable(failure, hint=hint))
        if (left := self._backoff.blocked_seconds) > 0:
            hint = (
                f"the first call after {math.ceil(left)} s reconnects; to reconnect now, restart the server"
            )
            raise self._with_server_id(
                Unreachable(self._status.cause or "sent too many unsolicited messages", hint=hint)
            )

    def _start_connecting(self) -> asyncio.Future[McpSession]:
        """Return the future of the one connect attempt that all callers share; start it if needed."""
        # There is no await between this check and the assignment below, so two callers cannot both start an
        # attempt. A failed future is done, and so replaced: a failure is not cached.
        if self._session_future is None or self._session_future.done():
            if self._restart_timer is not None:
                self._restart_timer.cancel()
                self._restart_timer = None
            loop = asyncio.get_running_loop()
            self._session_future = loop.create_future()
            # Retrieve the exception even if every caller has been cancelled, or asyncio logs it.
            self._session_future.add_done_callback(lambda done: done.cancelled() or done.exception())
            context = self._connector.tracer.isolate_context() if self._isolated_context else None
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
            # The owner was cancelled, perhaps before its first step: callers must still be released.
            session_future.set_exception(self._with_server_id(Unreachable("the connection is closed")))

    async def _run_session(self, session_future: asyncio.Future[McpSession]) -> None:
        """Body of the owner task: open a session, wait for its end, close it.

        Callers get their result or error before anything is closed, because closing may take seconds.
        """
        created_sessions: list[McpSession] = []
        try:
            with self._connector.tracer.span(
                f"connect {self.server.id}", attributes=describe_server(self.server)
            ):
                session = await self._open_session(created_sessions)
            if self._session_future is session_future:
                self._session_future = None
            # Stored before callers get it, so that a loss from here on finds the session in ``_session`` and
            # changes the state.
            self._set_ready(session)
            if session.end_future.done():
                # It was lost after the handshake but before it was stored, so on_end had no effect.
                self._on_session_lost(session, session.end_future.result())
            session_future.set_result(session)
            await session.end_future
        except ServerError as error:
            flooded = any(session.has_exceeded_traffic_limits for session in created_sessions)
            self._on_connect_failed(error, flooded=flooded)
            session_future.set_exception(self._with_server_id(error))
        except Exception as error:
            # Boundary of the task: a bug of ours must not leave callers waiting.
            log.exception("server '%s': connecting failed unexpectedly", self.server.id)
            if not session_future.done():
                failure = Unreachable(f"connecting failed unexpectedly: {error!r}")
                self._on_connect_failed(failure)
                session_future.set_exception(self._with_server_id(failure))
        finally:
            if self._session_future in (session_future, None):
                # No newer attempt has started, so _new_session is still ours to clear.
                self._new_session = None
            # Several sessions, because the connector makes a new one for each era that it tries. The callers
            # have their outcome by now and do not wait for the slow part below. A stack closes every session,
            # even if the task is cancelled while it closes one of them.
            async with contextlib.AsyncExitStack() as stack:
                for session in reversed(created_sessions):
                    if self._session is session:
                        self._session = None
                    self._replaced_sessions.discard(session)
                    stack.push_async_callback(session.close)

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
                hint=connect_timeout_hint(self.server, self.status().noise),
            ) from None

    def _get_auth_provider(self) -> AuthProvider | None:
        """Return the auth provider, created once: its token state outlives a session."""
        if self._auth_provider is None:
            self._auth_provider = self._connector.find_auth_provider(self.server, self._principal)
        return self._auth_provider

    def _on_session_created(self, created_sessions: list[McpSession], session: McpSession) -> None:
        created_sessions.append(session)
        if (handler := self._on_notification) is not None:
            session.on_notification = functools.partial(handler, self.server.id)
        session.on_end = self._on_session_lost
        if self.serves_clients:
            session.on_log = self.clients.forward_log
            session.on_roots_refused = self._on_roots_refused
        self._new_session = session

    def _on_roots_refused(self) -> None:
        """Tell the operator how the server gets roots. It may work without them."""
        self._status.hint = f"the server asks for roots: {_ROOTS_HINT}"
        if not self._has_asked_for_roots:
            self._has_asked_for_roots = True
            log.warning("server '%s' asks for roots, which Toolyard does not offer to it", self.server.id)

    def _add_roots_hint(self, error: ServerError) -> None:
        """Add the hint to the error of a server that ended, if it may have ended for want of roots."""
        if not self.serves_clients or "roots" in self.offered_capabilities:
            return
        output = find_failure_line(self.status().stderr, 1_000)
        if self._has_asked_for_roots or re.search(r"\broots\b", output, re.IGNORECASE):
            error.hint = f"if the server needs roots: {_ROOTS_HINT}"

    def _describe_last_output(self) -> str:
        status = self.status()
        if line := find_failure_line(status.stderr, 200):
            return f"; last output: {line}"
        return f"; lines on its stdout that are not MCP messages: {status.noise}" if status.noise else ""

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
        self._logged_cause = None
        status.connects += 1
        if (handshake := session.handshake_result) is not None:
            status.protocol_version = handshake.version
            status.server_info, status.capabilities = handshake.info, handshake.capabilities
            status.instructions = handshake.instructions
        if self._idle_timer is not None and status.in_flight == 0:
            self._idle_timer.start(self._stop_if_idle)

    # Failure and recovery.

    def _on_session_lost(self, session: McpSession, error: ServerError) -> None:
        # A retired or stopped session was removed from here before; its end must not change the state of its
        # successor. The loss of one that is still in its handshake fails the connect attempt instead.
        if self._session is not session:
            return
        self.status()  # Copy stderr and the line counts from the transport before it is dropped.
        self._session = None
        if self._status.state is State.CLOSED:
            return
        self._backoff.forget_if_stable(time.monotonic() - self._state_since)
        if session.has_exceeded_traffic_limits:
            self._block_after_flood(error)
            return
        # A lost HTTP connection is nothing unusual: the next call connects again. A process that ended has
        # crashed.
        if not isinstance(self.server.transport, StdioSpec):
            self._set_state(State.IDLE, error)
            return
        self._add_roots_hint(error)
        self._set_state(State.FAILED, error)
        log.error("server '%s': %s", self.server.id, self._status.cause)
        if self.server.restart is RestartPolicy.NEVER:
            self._backoff.permanent_failure = error.cause
            return
        self._schedule_restart(error)

    def _block_after_flood(self, error: ServerError) -> None:
        """Refuse to connect for a while, longer after each flood. The first call after that connects."""
        delay = self._backoff.block_after_flood()
        self._set_state(State.FAILED, error)
        self._status.next_retry = time.time() + delay
        log.error("server '%s': %s; not connecting for %g s", self.server.id, self._status.cause, delay)

    def _schedule_restart(self, error: ServerError) -> None:
        delay = self._backoff.count_crash()
        if delay is None:
            failure = f"crashed {self._backoff.crashes + 1} times in a row; the last time: {error.cause}"
            self._backoff.permanent_failure = failure
            self._set_state(State.FAILED, Unreachable(failure))
            return
        # The timer starts the attempt without a caller. A call in between starts it at once and cancels the
        # timer.
        self._status.restarts += 1
        self._status.next_retry = time.time() + delay
        self._restart_timer = asyncio.get_running_loop().call_later(delay, self._start_connecting)

    def _on_connect_failed(self, error: ServerError, *, flooded: bool = False) -> None:
        self.status()
        if self._status.state is State.CLOSED:
            return
        if flooded:
            self._block_after_flood(error)
            return
        self._add_roots_hint(error)
        self._set_state(State.NEEDS_AUTH if isinstance(error, SignInNeeded) else State.FAILED, error)
        # Listings try again and again; the log has each cause once.
        if self._status.cause != self._logged_cause:
            log.warning("server '%s' cannot be used: %s", self.server.id, self._status.cause)
        self._logged_cause = self._status.cause
        # Only after a crash: a server that never started, such as one with a wrong command, fails its callers
        # and is tried again by the next call, not by a timer.
        if self._backoff.crashes and self.server.restart is RestartPolicy.ON_FAILURE:
            self._schedule_restart(error)

    async def _recover_for_retry(self, session: McpSession, error: ServerError, repeatable: bool) -> bool:
        """Prepare a second attempt of a failed request. Return True if the request may be sent again.

        A lost session or a rejected version means that the server did not execute the request, so any request
        is repeated on a new session. With an unknown outcome only ``repeatable`` requests are sent again.
        """
        unsupported = isinstance(error, RpcError) and error.code == UNSUPPORTED_VERSION
        if isinstance(error, SessionLost) or unsupported:
            self._retire_session(session, error)
            return True
        if isinstance(error, RpcError) and error.code == HEADER_MISMATCH:
            return await self._refresh_header_params()
        if isinstance(error, OutcomeUnknown):
            # Not if this side ended the session: repeating the call would connect again to a server that was
            # just closed or restarted.
            alive = self._backoff.permanent_failure is None and self._status.state is not State.CLOSED
            return repeatable and alive and not session.is_closed_by_us
        if self._session is session and not session.is_over:
            if isinstance(error, SignInNeeded):
                self._set_state(State.NEEDS_AUTH, error)
            elif _is_server_down(error):
                # The session itself stays usable; the state shows users that the server is down.
                self._set_state(State.FAILED, error)
        return False

    async def _refresh_header_params(self) -> bool:
        """List the tools again, since the tool may mirror other parameters by now. Return True on success."""
        with contextlib.suppress(ServerError):
            await self.list_tools()
            return True
        return False

    def _retire_session(self, session: McpSession, error: ServerError) -> None:
        """Stop using this session for new calls; only the first caller to notice has an effect.

        Calls of others that are running on it may still complete.
        """
        if self._session is session:
            self._session = None
            self._replaced_sessions.add(session)
            self._set_state(State.IDLE, error)

    async def _end_sessions(self, reason: str) -> None:
        for timer in (self._restart_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._restart_timer = None
        # Later connects must fetch new credentials.
        provider, self._auth_provider = self._auth_provider, None
        sessions = list(self._replaced_sessions)
        if self._session is not None:
            sessions.append(self._session)
            self._session = None
        # Calls in flight fail now, not after the close below, which may take seconds (SIGTERM, then SIGKILL).
        for session in sessions:
            session.on_lost(Unreachable(reason))
        if (
            self._session_future is not None
            and not self._session_future.done()
            and self._connect_task is not None
        ):
            # Only an attempt that is still connecting needs to be cancelled, and only once: a second time
            # would interrupt it while it closes its process. An owner task that holds a session has been
            # woken through ``end_future`` and closes it without being interrupted.
            self._connect_task.cancel()
            self._connect_task = None
        try:
            if self._owner_tasks:
                await asyncio.wait(self._owner_tasks)
        finally:
            # Only after the sessions: ending an HTTP session is a request that needs credentials too.
            close: Callable[[], Awaitable[None]] | None = getattr(provider, "close", None)
            if close is not None:
                await close()

    def _stop_if_idle(self) -> None:
        if not self._status.in_flight and self._session is not None:
            self._stop_session(self._session)

    def _stop_session(self, session: McpSession) -> None:
        self._session = None
        self._set_state(State.IDLE)
        session.on_lost(Unreachable("was stopped after being idle"))

    # Status.

    def _set_state(self, state: State, error: ServerError | None = None) -> None:
        status = self._status
        status.state, status.since = state, time.time()
        # Two clocks: people read ``since``, while durations must not jump when the system's clock is set.
        self._state_since = time.monotonic()
        if error is not None:
            redact_error(error, self._known_secrets)
            status.cause, status.reason, status.hint = error.cause, error.kind, error.hint
        else:
            status.cause = status.reason = status.hint = None
        status.next_retry = None
        if state is not State.READY:
            status.pid = None

    @property
    def _known_secrets(self) -> tuple[str, ...]:
        """Secrets of the definition, and the access token in use."""
        token: str | None = getattr(self._auth_provider, "access_token", None)
        return self._secrets if token is None else (*self._secrets, token)

    def _with_server_id(self, error: ServerError) -> ServerError:
        redact_error(error, self._known_secrets)
        error.server = self.server.id
        return error


def _is_server_down(error: ServerError) -> bool:
    """Return True if an error means that the whole server, or the proxy in front of it, is down."""
    if isinstance(error, HttpStatus):
        return error.status in (502, 503, 504)
    return isinstance(error, Unreachable) and not isinstance(error, Throttled)


def initial_status(server: Server, principal: Principal) -> Status:
    """Return the status of a connection that was never used."""
    if server.problems:
        cause, hint = server.problem_text, server.problem_hint
        return Status(
            server.id,
            principal.id,
            State.FAILED,
            time.time(),
            cause=cause,
            reason="invalid_entry",
            hint=hint,
        )
    state = State.IDLE if server.enabled else State.DISABLED
    cause = server.disabled_reason
    reason = None if cause is None else "disabled"
    return Status(server.id, principal.id, state, time.time(), cause=cause, reason=reason)
