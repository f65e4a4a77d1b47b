"""One MCP session over one transport: outgoing requests, incoming messages, and the end of both."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from toolyard.clients.callbacks import (
    AbandonedCalls,
    Callbacks,
    CapabilityNotOffered,
    InFlightCall,
    describe_call,
    find_sole_client,
    is_call,
)
from toolyard.clients.unsolicited_traffic import (
    ListChangeThrottle,
    TrafficLimits,
    TrafficMeter,
    UnsolicitedKind,
)
from toolyard.concurrency.tasks import BackgroundTasks
from toolyard.errors import (
    BadAnswer,
    CallTimeout,
    OutcomeUnknown,
    RpcError,
    ServerError,
    ToolyardError,
    Unreachable,
)
from toolyard.protocol.constants import INTERNAL_ERROR, LIST_CHANGED_METHODS, METHOD_NOT_FOUND
from toolyard.protocol.eras import RequestBuilder
from toolyard.protocol.framing import Line, OversizeLine
from toolyard.protocol.handshake import HandshakeResult
from toolyard.protocol.jsonrpc import (
    Cancellation,
    IncomingRequest,
    Message,
    Notification,
    PendingRequests,
    Progress,
    RequestId,
    RpcFailure,
    RpcResponse,
    UnprocessableMessage,
    build_error_message,
    build_notification,
    build_request,
    build_result_message,
    has_method_first,
    recover_response_id,
)
from toolyard.results.json_size import estimate_characters
from toolyard.results.readable_json import to_readable_json
from toolyard.results.truncation import truncate_middle
from toolyard.transports.transport import NOT_MCP_HINT, Transport
from toolyard.types.call import McpRequest, RequestClient
from toolyard.types.server import Timeouts

__all__ = ["McpSession", "PendingCall"]

log = logging.getLogger("toolyard.link")

_MAX_SERVER_REQUESTS = 64
"""Maximum number of server requests answered concurrently; further ones are refused."""
_MAX_QUEUED_REPLIES = 256
"""Maximum number of queued replies (pings and refusals), sent one after another; further requests get
none."""
_MAX_ERROR_CHARACTERS = 20_000
"""Maximum number of characters of a server's error that is stored. Every error text is later searched for
secrets, so its length must be bounded."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """One request in flight, with its future and its time limits."""

    future: asyncio.Future[dict[str, Any]]
    silence: float
    request: McpRequest
    last_progress: float = 0.0
    timeout_scope: asyncio.Timeout | None = None
    latest_end: float = 0.0
    failure: ServerError | None = None

    def fail(self, error: ServerError) -> None:
        """Fail the call at once, whether it awaits the response or is still inside ``transport.send``.

        Setting the future only reaches a task that awaits the future. A task that is still sending is
        interrupted by moving its timeout to now; ``request`` then raises ``failure`` in place of a timeout.
        """
        if self.future.done():
            return
        self.failure = error
        self.future.set_exception(error)
        self.reschedule(asyncio.get_running_loop().time())

    def reschedule(self, when: float) -> None:
        if self.timeout_scope is not None:
            # The timeout may have expired already in this iteration of the loop; it cannot be moved then.
            with contextlib.suppress(RuntimeError):
                self.timeout_scope.reschedule(min(when, self.latest_end))


class McpSession:
    """A transport and all requests in flight on it.

    One owner task creates, opens and closes it; any task may call ``request``. However the session ends,
    every pending request fails with a ServerError. The transport calls ``on_message``, ``should_decode`` and
    ``on_lost``.
    """

    def __init__(
        self,
        server: str,
        transport: Transport,
        request_builder: RequestBuilder,
        callbacks: Callbacks,
        traffic_limits: TrafficLimits = TrafficLimits(),  # noqa: B008 - frozen
        *,
        server_requests_per_minute: int = 120,
    ) -> None:
        self.server = server
        self.transport = transport
        self.request_builder = request_builder
        self.handshake_result: HandshakeResult | None = None
        self.skipped_messages = 0
        self.active_calls = 0
        """Number of calls of the owner that currently use this session."""
        self.on_notification: Callable[[str, Mapping[str, Any]], None] | None = None
        self.on_end: Callable[[McpSession, ServerError], None] | None = None
        self.on_log: Callable[[Mapping[str, Any]], None] | None = None
        """Called with each log message, before the program's callback."""
        self.on_roots_refused: Callable[[], None] | None = None
        """Called when the server asks for roots, which it was not offered."""
        self.has_exceeded_traffic_limits = False
        """True if the session ended because the server exceeded the traffic limits."""
        self._traffic_limits = traffic_limits
        self._traffic_meter = TrafficMeter(traffic_limits)
        self._list_change_throttles: dict[str, ListChangeThrottle] = {}
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._pending: PendingRequests[PendingCall] = PendingRequests()
        self._abandoned_calls = AbandonedCalls()
        self._server_requests: dict[RequestId, asyncio.Task[None]] = {}
        self._queued_replies: deque[Message] = deque()
        self._server_request_times: deque[float] = deque(maxlen=server_requests_per_minute)
        """Times of the latest server requests, on the clock of the event loop."""
        self._tasks = BackgroundTasks()
        self._end_reason: ServerError | None = None
        self.is_over = False
        self.end_future: asyncio.Future[ServerError] = self._loop.create_future()
        """Completed with the reason when the session ends."""

    @property
    def is_closed_by_us(self) -> bool:
        """True if the session was ended by this side rather than by the server."""
        return isinstance(self._end_reason, Unreachable)

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def open(self) -> None:
        """Open the transport. Raise a ServerError; ``close`` must be called in any case."""
        await self.transport.open(self)

    # Outgoing messages.

    async def request(
        self,
        request: McpRequest,
        timeouts: Timeouts,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send one request and return its result. Raise a ServerError, at the latest when ``timeouts`` have
        passed, which apply in place of those of the request."""
        if self._end_reason is not None:
            raise Unreachable(self._end_reason.cause, hint=self._end_reason.hint)
        method = request.method
        client = request.client
        call = PendingCall(self._loop.create_future(), timeouts.silence, request)
        id = self._pending.register(call, method)
        # ``initialize`` negotiates the version, so it has none of the ``_meta`` fields that depend on it.
        if method == "initialize":
            params = dict(request.params or {})
        else:
            # The progress of a call also extends its time limit, so it is always requested.
            wants_progress = method == "tools/call" or request.on_progress is not None
            params = self.request_builder.build_params(
                request.params,
                progress_token=id if wants_progress else None,
                log_level=None if client is None else client.log_level,
                meta=request.meta,
                capabilities=None if client is None else client.capabilities,
            )
        now = self._loop.time()
        call.latest_end = now + timeouts.call
        try:
            # One timeout covers sending and waiting. It starts with the silence limit; each progress
            # notification moves it (see _on_progress), but never beyond latest_end.
            async with asyncio.timeout_at(min(now + timeouts.silence, call.latest_end)) as call.timeout_scope:
                await self.transport.send(build_request(id, method, params), headers)
                return await call.future
        except TimeoutError:
            self._cancel_request(id, request, timeouts, "timed out")
            if call.failure is not None:
                raise call.failure from None
            raise self._timeout_error(call, timeouts, method) from None
        except asyncio.CancelledError:
            self._cancel_request(id, request, timeouts, "cancelled by the caller")
            raise
        finally:
            self._pending.discard(id)
            if call.failure is not None and call.future.done():
                # Mark the exception as retrieved, or asyncio logs it when the future is collected.
                call.future.exception()
            # A raised error references this frame, and `call` references the error through its future. Break
            # the cycle, or both stay in memory until the garbage collector runs.
            del call

    def _timeout_error(self, call: PendingCall, timeouts: Timeouts, method: str) -> CallTimeout:
        if self._loop.time() >= call.latest_end:
            limit_seconds = timeouts.call
            error = CallTimeout(
                f"{method} took longer than {limit_seconds:g} s in all",
                hint="raise 'timeouts.call' if the server needs longer",
            )
        else:
            limit_seconds = timeouts.silence
            error = CallTimeout(
                f"{method}: no response or progress for {limit_seconds:g} s",
                hint="raise 'timeouts.silence' if the server needs longer",
            )
        error.method, error.limit_seconds = method, limit_seconds
        return error

    async def send_notification(self, method: str) -> None:
        """Send a notification and wait until it is written. Raise a ServerError."""
        await self.transport.send(build_notification(method))

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification in the background. Failures are only logged."""
        self.spawn(self._send_best_effort(build_notification(method, params)))

    def _cancel_request(self, id: int, request: McpRequest, timeouts: Timeouts, reason: str) -> None:
        # The specification forbids cancelling `initialize`, and allows to cancel only requests that are in
        # progress: not one that was answered in the meantime. Some transports cancel by closing the
        # response stream, and need no message.
        was_pending = self._pending.discard(id)
        if (
            was_pending
            and self._end_reason is None
            and request.method != "initialize"
            and not self.transport.cancels_on_disconnect
        ):
            if is_call(request.method):
                self._abandoned_calls.add(id, request, self._loop.time() + timeouts.call)
            self.notify("notifications/cancelled", {"requestId": id, "reason": reason})

    async def _send_best_effort(self, message: Message) -> None:
        try:
            async with asyncio.timeout(10):
                await self.transport.send(message)
        except (ServerError, TimeoutError) as error:
            log.debug("%s: a message could not be sent: %s", self.server, error)

    # Incoming messages.

    def should_decode(self, undecoded: Line) -> bool:
        """Return whether a large undecoded message is worth decoding: only if it may answer a pending
        request.

        Decoding costs much more memory than the bytes themselves. Small messages are always decoded. A large
        one is decoded if its id belongs to a pending request, or if no id can be recovered and it does not
        begin like a request or notification. Others count as unsolicited traffic.
        """
        size = undecoded.size if isinstance(undecoded, OversizeLine) else len(undecoded)
        if size <= self._traffic_limits.message_bytes:
            return True
        id = recover_response_id(undecoded)
        accepted = self._pending.is_pending(id) if id is not None else not has_method_first(undecoded)
        if not accepted:
            self._abandoned_calls.on_answer(id)
            self._count_unsolicited(size)
        return accepted

    def on_stray_lines(self, number: int, size: int, kind: Literal["line", "stderr"] = "line") -> None:
        self._count_traffic(size, kind, number)

    def _count_unsolicited(self, size: int, kind: UnsolicitedKind = "message") -> bool:
        """Count a message that answers no request. Return False if it must be ignored: the session is over,
        the traffic limits are exceeded, or the message itself is too large."""
        if not self._count_traffic(size, kind):
            return False
        if size > self._traffic_limits.message_bytes:
            self._skip_message(UnprocessableMessage(f"a message of {size:,} bytes that answers no request"))
            return False
        return True

    def _count_traffic(self, size: int, kind: UnsolicitedKind, number: int = 1) -> bool:
        """Return False if the session is over, or ends because the traffic limits are exceeded."""
        if self._end_reason is not None:
            return False
        exceeded = self._traffic_meter.count(size, self._loop.time(), kind, number=number)
        if exceeded is not None:
            self.has_exceeded_traffic_limits = True
            if kind == "line" and self.handshake_result is None:
                # It has not answered at all, so it is not asked again in an older era either.
                self.on_lost(BadAnswer(exceeded, hint=NOT_MCP_HINT))
            else:
                self.on_lost(OutcomeUnknown(exceeded))
        return exceeded is None

    def on_message(self, message: object, size: int = 0) -> None:
        for each in cast("list[object]", message) if isinstance(message, list) else (message,):
            event = self._pending.receive(each)
            if isinstance(event, RpcResponse):
                self._on_response(event)
                continue
            if not self._count_unsolicited(size, "progress" if isinstance(event, Progress) else "message"):
                return
            size = 0  # The messages of a batch share its size; count it once.
            if isinstance(event, Progress):
                self._on_progress(event.token, event.params)
            elif isinstance(event, Notification):
                self._on_notification(event)
            elif isinstance(event, IncomingRequest):
                self._on_server_request(event)
            elif isinstance(event, Cancellation):
                # A cancelled request gets no response (Cancellation), so cancelling the task that would send
                # it is enough.
                if (task := self._server_requests.get(event.id)) is not None:
                    task.cancel()
            else:
                self._abandoned_calls.on_answer(event.response_id)
                self._skip_message(event)

    def _on_response(self, event: RpcResponse[PendingCall]) -> None:
        future = event.token.future
        if future.done():
            return
        if event.failure is None:
            result, limit = event.result or {}, self._traffic_limits.message_bytes
            is_question = result.get("resultType") == "input_required"
            if is_question and estimate_characters(result, limit) > limit:
                # A question counts like a request from a legacy server, which is dropped above this size.
                future.set_exception(BadAnswer(f"asked for input with more than {limit:,} characters"))
            else:
                future.set_result(result)
        elif event.failure.code == 0:
            # Code 0: the response itself was malformed (see ``jsonrpc.py``), not an error of the server.
            future.set_exception(BadAnswer(event.failure.message))
        else:
            future.set_exception(_build_rpc_error(event.failure))

    def _on_progress(self, call: PendingCall, params: dict[str, Any]) -> None:
        # Progress restarts the silence limit, but not the total one: the specification (Timeouts) asks for a
        # maximum regardless of progress.
        call.reschedule(self._loop.time() + call.silence)
        if call.request.on_progress is not None:
            if isinstance(value := params.get("progress"), int | float):
                call.last_progress = value
            self._run_callback(call.request.on_progress, params)

    def _on_notification(self, event: Notification) -> None:
        if event.method != "notifications/message":
            self.dispatch_notification(event.method, event.params)
            return
        if self.on_log is not None:
            self._run_callback(self.on_log, event.params)
        if self._callbacks.log is not None:
            self._run_callback(self._callbacks.log, self.server, event.params)

    def dispatch_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification to the connection's handler and to the program's callback. Frequent changes of
        a list are merged."""
        if method in LIST_CHANGED_METHODS:
            throttle = self._list_change_throttles.setdefault(
                method, ListChangeThrottle(self._traffic_limits)
            )
            delay = throttle.next_delay(self._loop.time())
            if delay is None:
                return
            if delay > 0:
                self.spawn(self._deliver_later(delay, method, params))
                return
        self._deliver_notification(method, params)

    async def _deliver_later(self, delay: float, method: str, params: Mapping[str, Any]) -> None:
        await asyncio.sleep(delay)
        self._deliver_notification(method, params)

    def _deliver_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if self.on_notification is not None:
            self._run_callback(self.on_notification, method, params)
        if self._callbacks.notification is not None:
            self._run_callback(self._callbacks.notification, self.server, method, params)

    def _run_callback(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a user-supplied function. Exceptions are logged and do not affect the session."""
        try:
            result = function(*arguments)
        except Exception:
            log.exception("%s: a callback failed", self.server)
            return
        if inspect.isawaitable(result):
            self.spawn(self._await_callback(result))

    async def _await_callback(self, result: Awaitable[Any]) -> None:
        try:
            await result
        except Exception:
            log.exception("%s: a callback failed", self.server)

    def _skip_message(self, event: UnprocessableMessage) -> None:
        self.skipped_messages += 1
        if self.skipped_messages <= 3:
            log.debug("%s: skipped %s", self.server, event.reason)

    # Requests from the server, in eras where it does not ask in results.

    def _on_server_request(self, event: IncomingRequest) -> None:
        if event.is_echo:
            self.on_lost(BadAnswer("echoes its input back; is it an MCP server?"))
        elif self.handshake_result is not None and self.handshake_result.era.asks_in_results:
            era = self.handshake_result.era.name
            self._skip_message(
                UnprocessableMessage(f"{event.method}: servers do not send requests in the {era} era")
            )
        elif event.method == "ping":
            self._queue_reply(build_result_message(event.id, {}))
        elif len(self._server_requests) >= _MAX_SERVER_REQUESTS or event.id in self._server_requests:
            self._queue_reply(build_error_message(event.id, INTERNAL_ERROR, "too many concurrent requests"))
        elif self._exceeds_request_rate():
            self._queue_reply(
                build_error_message(event.id, INTERNAL_ERROR, "too many requests within one minute")
            )
        else:
            self._pause_silence_timeouts()
            task = self.spawn(self._answer_server_request(event))
            self._server_requests[event.id] = task
            # A callback rather than ``finally`` in the task: a task that is cancelled before its first step
            # runs none of its code, and its id would stay in use forever.
            task.add_done_callback(lambda _: self._on_server_request_done(event.id))

    def _exceeds_request_rate(self) -> bool:
        """Count one more server request and return True if the rate limit is exceeded.

        The concurrency limit alone is not enough: a server that cancels its own requests could send them
        without end, and each may prompt a person or cost a model request.
        """
        now, times = self._loop.time(), self._server_request_times
        if len(times) == times.maxlen and now - times[0] < 60:
            return True
        times.append(now)
        return False

    def _queue_reply(self, message: Message) -> None:
        """Queue a reply that needs no callback. Replies are sent by one task, one after another.

        Over HTTP each reply is a request of its own. A server that sends requests without end but accepts no
        replies would otherwise occupy all connections of the pool.
        """
        if len(self._queued_replies) >= _MAX_QUEUED_REPLIES:
            self._skip_message(UnprocessableMessage("a request, because too many replies are queued"))
            return
        self._queued_replies.append(message)
        if len(self._queued_replies) == 1:
            self.spawn(self._send_replies())

    async def _send_replies(self) -> None:
        while self._queued_replies:
            # Removed only after sending: _queue_reply starts a new task exactly when the queue was empty.
            await self._send_best_effort(self._queued_replies[0])
            self._queued_replies.popleft()

    async def _answer_server_request(self, event: IncomingRequest) -> None:
        # Found before the first await, with the calls that were running when the server asked.
        calls = self._list_in_flight_calls()
        client = find_sole_client(calls, event.method, event.params)
        callbacks = self._callbacks if client is None else Callbacks.from_client(client)
        try:
            if event.method.partition("/")[0] not in self.request_builder.capabilities:
                raise CapabilityNotOffered(event.method)
            result = await callbacks.answer(self.server, event.method, event.params, calls)
            message = build_result_message(event.id, result)
        except CapabilityNotOffered:
            if event.method == "roots/list" and self.on_roots_refused is not None:
                self.on_roots_refused()
            message = build_error_message(event.id, METHOD_NOT_FOUND, f"{event.method} is not offered")
        except ToolyardError as error:
            # A refusal with a message meant for the server, or a failed callback.
            message = build_error_message(event.id, INTERNAL_ERROR, error.cause)
        await self._send_best_effort(message)

    def list_clients(self) -> list[RequestClient]:
        """Return the clients of the requests that the server has not answered."""
        clients = (call.request.client for call in self._pending.tokens())
        return [client for client in clients if client is not None]

    def _list_in_flight_calls(self) -> list[InFlightCall]:
        """Return the calls that a request from the server may belong to."""
        return [
            *self._abandoned_calls.list_calls(self._loop.time()),
            *(
                InFlightCall(
                    describe_call(call.request),
                    call.request.client,
                    functools.partial(self._report_wait, call),
                    call.fail,
                )
                for call in self._pending.tokens()
                if is_call(call.request.method)
            ),
        ]

    def _report_wait(self, call: PendingCall, message: str) -> None:
        """Report progress of our own for a call that waits. The specification requires that it increases."""
        if call.request.on_progress is not None and not call.future.done():
            call.last_progress += 0.001
            params = {"progress": call.last_progress, "message": message}
            self._run_callback(call.request.on_progress, params)

    def _pause_silence_timeouts(self) -> None:
        """Suspend the silence limit of all calls: the server may be waiting for our answer. The total limit
        stays."""
        for call in self._pending.tokens():
            call.reschedule(call.latest_end)

    def _on_server_request_done(self, id: RequestId) -> None:
        self._server_requests.pop(id, None)
        if not self._server_requests:
            now = self._loop.time()
            for call in self._pending.tokens():
                call.reschedule(now + call.silence)

    # The end of the session.

    def on_lost(self, error: ServerError) -> None:
        """End the session with ``error`` and fail every pending request. Later calls have no effect."""
        if self._end_reason is not None:
            return
        self._end_reason, self.is_over = error, True
        for call in self._pending.tokens():
            call.fail(_error_for_pending_call(error))
        if not self.end_future.done():
            self.end_future.set_result(error)
        if self.on_end is not None:
            self.on_end(self, error)

    async def close(self, reason: str = "the connection is closed") -> None:
        """End all calls, server requests and streams, then close the transport, which bounds the time it
        takes."""
        self.on_lost(Unreachable(reason))
        # Tasks first: a callback or a reply must not use the transport while it closes.
        try:
            await self._tasks.close()
        finally:
            await self.transport.close()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled when the session closes."""
        return self._tasks.spawn(coroutine)


def _build_rpc_error(failure: RpcFailure) -> RpcError:
    """Convert a JSON-RPC error, truncating long texts in the middle."""
    data_text = "" if failure.data is None else to_readable_json(failure.data, _MAX_ERROR_CHARACTERS)
    data = (
        failure.data
        if len(data_text) <= _MAX_ERROR_CHARACTERS
        else truncate_middle(data_text, _MAX_ERROR_CHARACTERS, None)
    )
    return RpcError(failure.code, truncate_middle(failure.message, _MAX_ERROR_CHARACTERS, None), data)


def _error_for_pending_call(error: ServerError) -> ServerError:
    """Return the error for a request that was already sent when the session ended.

    Unreachable promises that nothing was executed, which cannot be known here: it becomes OutcomeUnknown.
    """
    kind = OutcomeUnknown if isinstance(error, Unreachable) else type(error)
    return kind(error.cause, hint=error.hint)
