"""One live way to one server: requests out, answers and questions in, each ended for certain."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from toolyard.clients.callbacks import Callbacks, CapabilityNotOffered
from toolyard.clients.unsolicited_traffic import TrafficLimits, TrafficMeter
from toolyard.errors import (
    BadAnswer,
    CallTimeout,
    OutcomeUnknown,
    RpcError,
    ServerError,
    ToolyardError,
    Unreachable,
)
from toolyard.protocol.client import HandshakeResult, RequestBuilder
from toolyard.protocol.constants import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolyard.protocol.framing import Line, OversizeLine
from toolyard.protocol.id_recovery import has_method_first, recover_response_id
from toolyard.protocol.pending import (
    Cancellation,
    IncomingRequest,
    Message,
    Notification,
    PendingRequests,
    Progress,
    RequestId,
    RpcFailure,
    RpcResponse,
    UnmatchedResponse,
    build_error_message,
    build_notification,
    build_request,
    build_result_message,
)
from toolyard.results.readable_json import to_readable_json
from toolyard.results.truncation import truncate_middle
from toolyard.transports.transport import Transport

__all__ = ["Deadline", "McpSession", "OnProgress"]

log = logging.getLogger("toolyard.link")

OnProgress: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None] | None]
"""Told each progress notification of a call. May be a coroutine function."""

_MAX_SERVER_REQUESTS = 64
"""Questions of a server that are answered at the same time; more are refused."""
_MAX_QUEUED_REPLIES = 256
"""Pings and refusals that wait to be sent, one after another; more are not answered."""
_MAX_ERROR_CHARACTERS = 100_000
"""Characters of a server's error, which is searched for secrets wherever it comes by."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds: how long without answer or progress, and how long at all."""

    silence: float
    total: float


class _PendingCall:
    """A request in flight."""

    __slots__ = ("cap", "clock", "failure", "future", "on_progress", "silence")

    def __init__(
        self, future: asyncio.Future[dict[str, Any]], silence: float, on_progress: OnProgress | None
    ):
        self.future = future
        self.silence = silence
        self.on_progress = on_progress
        self.clock: asyncio.Timeout | None = None
        self.cap = 0.0
        self.failure: ServerError | None = None

    def fail(self, error: ServerError) -> None:
        """End it now, wherever it waits: for the answer, or still inside the transport."""
        if self.future.done():
            return
        self.failure = error
        self.future.set_exception(error)
        self.reschedule(asyncio.get_running_loop().time())

    def reschedule(self, when: float) -> None:
        if self.clock is not None:
            # The clock may be ringing this very moment.
            with contextlib.suppress(RuntimeError):
                self.clock.reschedule(min(when, self.cap))


class McpSession:
    """Owns a transport and everything in flight on it. Made, opened and closed by one owner task."""

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
        self.users = 0
        """Calls that its owner has running on it."""
        self.on_notification: Callable[[str, Mapping[str, Any]], None] | None = None
        self.on_end: Callable[[McpSession, ServerError], None] | None = None
        self.has_exceeded_traffic_limits = False
        """Whether it ended because the server exceeded the traffic limits."""
        self._traffic_limits = traffic_limits
        self._traffic_meter = TrafficMeter(traffic_limits)
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._pending: PendingRequests[_PendingCall] = PendingRequests()
        self._server_requests: dict[RequestId, asyncio.Task[None]] = {}
        self._queued_replies: deque[Message] = deque()
        self._server_request_times: deque[float] = deque(maxlen=server_requests_per_minute)
        """When the server asked its last questions, on the clock of the loop."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._end_reason: ServerError | None = None
        self.end_future: asyncio.Future[ServerError] = self._loop.create_future()
        """Done when the other side is lost, with the reason."""

    @property
    def is_over(self) -> bool:
        return self._end_reason is not None

    @property
    def is_closed_by_us(self) -> bool:
        """Whether it ended because we closed it, and not the other side."""
        return isinstance(self._end_reason, Unreachable)

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def open(self) -> None:
        """Make the way. Raises a ServerError; ``close`` must be called in any case."""
        await self.transport.open(self)

    # Out.

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        deadline: Deadline,
        *,
        progress: bool = False,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        log_level: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of one request. Ends with a ServerError at the latest when patience does."""
        if self._end_reason is not None:
            raise Unreachable(self._end_reason.cause, hint=self._end_reason.hint)
        call = _PendingCall(self._loop.create_future(), deadline.silence, on_progress)
        id = self._pending.register(call, method)
        if method == "initialize":
            stamped = dict(params or {})
        else:
            token = id if progress or on_progress is not None else None
            stamped = self.request_builder.build_params(
                params, progress_token=token, log_level=log_level, meta=meta, capabilities=capabilities
            )
        now = self._loop.time()
        call.cap = now + deadline.total
        try:
            async with asyncio.timeout_at(min(now + deadline.silence, call.cap)) as call.clock:
                await self.transport.send(build_request(id, method, stamped), headers)
                return await call.future
        except TimeoutError:
            self._cancel_request(id, method, "timed out")
            if call.failure is not None:
                raise call.failure from None
            raise self._timeout_error(call, deadline, method) from None
        except asyncio.CancelledError:
            self._cancel_request(id, method, "cancelled by the caller")
            raise
        finally:
            self._pending.discard(id)
            if call.failure is not None and call.future.done():
                call.future.exception()
            # An error keeps this frame, and what the call has leads back to the error: its future, its task.
            del call

    def _timeout_error(self, call: _PendingCall, deadline: Deadline, method: str) -> CallTimeout:
        if self._loop.time() >= call.cap:
            limit_seconds = deadline.total
            error = CallTimeout(
                f"{method} took longer than {limit_seconds:g} s in all",
                hint="raise 'timeouts.call' if it needs longer",
            )
        else:
            limit_seconds = deadline.silence
            error = CallTimeout(
                f"{method}: neither answer nor progress for {limit_seconds:g} s",
                hint="raise 'timeouts.silence' if it needs longer",
            )
        error.method, error.limit_seconds = method, limit_seconds
        return error

    async def send_notification(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification and wait until it is gone. Raises a ServerError."""
        await self.transport.send(build_notification(method, params))

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, whenever that goes. Failures are nobody's concern."""
        self.spawn(self._send_best_effort(build_notification(method, params)))

    def _cancel_request(self, id: int, method: str, reason: str) -> None:
        waiting = self._pending.discard(id)
        if (
            waiting
            and self._end_reason is None
            and method != "initialize"
            and not self.transport.cancels_on_disconnect
        ):
            self.notify("notifications/cancelled", {"requestId": id, "reason": reason})

    async def _send_best_effort(self, message: Message) -> None:
        try:
            async with asyncio.timeout(10):
                await self.transport.send(message)
        except (ServerError, TimeoutError) as error:
            log.debug("%s: could not be told: %s", self.server, error)

    # In.

    def should_decode(self, undecoded: Line) -> bool:
        size = undecoded.size if isinstance(undecoded, OversizeLine) else len(undecoded)
        if size <= self._traffic_limits.message_bytes:
            return True
        id = recover_response_id(undecoded)
        accepted = self._pending.is_pending(id) if id is not None else not has_method_first(undecoded)
        if not accepted:
            self._count_unsolicited(size)
        return accepted

    def _count_unsolicited(self, size: int, *, progress: bool = False) -> bool:
        """Count a message that answers no request. Return whether it is taken in: the connection is not over,
        the limits are kept, and it is not too large itself."""
        if self._end_reason is not None:
            return False
        exceeded = self._traffic_meter.count(size, self._loop.time(), progress=progress)
        if exceeded is not None:
            self.has_exceeded_traffic_limits = True
            self.on_lost(OutcomeUnknown(exceeded))
            return False
        if size > self._traffic_limits.message_bytes:
            self._skip_message(UnmatchedResponse(f"a message of {size:,} bytes that answers no request"))
            return False
        return True

    def on_message(self, message: object, size: int = 0) -> None:
        for event in self._pending.receive_all(message):
            if isinstance(event, RpcResponse):
                self._on_response(event)
                continue
            if not self._count_unsolicited(size, progress=isinstance(event, Progress)):
                return
            size = 0  # The messages of a batch share its size.
            if isinstance(event, Progress):
                self._on_progress(event.token, event.params)
            elif isinstance(event, Notification):
                self._on_notification(event)
            elif isinstance(event, IncomingRequest):
                self._on_server_request(event)
            elif isinstance(event, Cancellation):
                if (task := self._server_requests.get(event.id)) is not None:
                    task.cancel()
            else:
                self._skip_message(event)

    def _on_response(self, event: RpcResponse[_PendingCall]) -> None:
        future = event.token.future
        if future.done():
            return
        if event.failure is None:
            future.set_result(event.result or {})
        elif event.failure.code == 0:
            future.set_exception(BadAnswer(event.failure.message))
        else:
            future.set_exception(_build_rpc_error(event.failure))

    def _on_progress(self, call: _PendingCall, params: dict[str, Any]) -> None:
        call.reschedule(self._loop.time() + call.silence)
        if call.on_progress is not None:
            self._run_callback(call.on_progress, params)

    def _on_notification(self, event: Notification) -> None:
        if event.method != "notifications/message":
            self.dispatch_notification(event.method, event.params)
        elif self._callbacks.log is not None:
            self._run_callback(self._callbacks.log, self.server, event.params)

    def dispatch_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on to whoever wants to know."""
        if self.on_notification is not None:
            self._run_callback(self.on_notification, method, params)
        if self._callbacks.notification is not None:
            self._run_callback(self._callbacks.notification, self.server, method, params)

    def _run_callback(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call what a user gave us: whatever it raises is recorded, and nothing else is disturbed."""
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

    def _skip_message(self, event: UnmatchedResponse) -> None:
        self.skipped_messages += 1
        if self.skipped_messages <= 3:
            log.debug("%s: skipped %s", self.server, event.reason)

    # Questions of the server, in the legacy era.

    def _on_server_request(self, event: IncomingRequest) -> None:
        if event.is_echo:
            self.on_lost(BadAnswer("repeats what it is sent; is it an MCP server?"))
        elif self.handshake_result is not None and self.handshake_result.modern:
            self._skip_message(
                UnmatchedResponse(f"{event.method}: a request, which the modern era does not have")
            )
        elif event.method == "ping":
            self._queue_reply(build_result_message(event.id, {}))
        elif len(self._server_requests) >= _MAX_SERVER_REQUESTS or event.id in self._server_requests:
            self._queue_reply(
                build_error_message(event.id, INTERNAL_ERROR, "too many requests at the same time")
            )
        elif self._exceeds_request_rate():
            self._queue_reply(
                build_error_message(event.id, INTERNAL_ERROR, "too many requests in one minute")
            )
        else:
            self._pause_silence_timeouts()
            task = self.spawn(self._answer_server_request(event))
            self._server_requests[event.id] = task
            task.add_done_callback(lambda _: self._on_server_request_done(event.id))

    def _exceeds_request_rate(self) -> bool:
        """Count one more question. A server that cancels its own questions could otherwise ask without end,
        and each may reach a person or cost a model request."""
        now, times = self._loop.time(), self._server_request_times
        if len(times) == times.maxlen and now - times[0] < 60:
            return True
        times.append(now)
        return False

    def _queue_reply(self, message: Message) -> None:
        """Answer at once, on one connection at most: a server that asks without end, and takes no answer,
        would otherwise cost everyone else theirs."""
        if len(self._queued_replies) >= _MAX_QUEUED_REPLIES:
            self._skip_message(UnmatchedResponse("a request, while too many answers wait to be sent"))
            return
        self._queued_replies.append(message)
        if len(self._queued_replies) == 1:
            self.spawn(self._send_replies())

    async def _send_replies(self) -> None:
        while self._queued_replies:
            await self._send_best_effort(self._queued_replies[0])
            self._queued_replies.popleft()

    async def _answer_server_request(self, event: IncomingRequest) -> None:
        try:
            result = await self._callbacks.answer(self.server, event.method, event.params)
            message = build_result_message(event.id, result)
        except CapabilityNotOffered:
            message = build_error_message(event.id, METHOD_NOT_FOUND, f"{event.method} is not offered")
        except ToolyardError as error:
            # Somebody said no, in words that are meant for others, or a callback failed.
            message = build_error_message(event.id, INTERNAL_ERROR, error.cause)
        await self._send_best_effort(message)

    def _pause_silence_timeouts(self) -> None:
        """While the server waits for us, its silence is ours."""
        for call in self._pending.tokens():
            call.reschedule(call.cap)

    def _on_server_request_done(self, id: RequestId) -> None:
        self._server_requests.pop(id, None)
        if not self._server_requests:
            now = self._loop.time()
            for call in self._pending.tokens():
                call.reschedule(now + call.silence)

    # The end.

    def on_lost(self, error: ServerError) -> None:
        if self._end_reason is not None:
            return
        self._end_reason = error
        for call in self._pending.tokens():
            call.fail(_error_for_pending_call(error))
        if not self.end_future.done():
            self.end_future.set_result(error)
        if self.on_end is not None:
            self.on_end(self, error)

    async def close(self, reason: str = "the connection is closed") -> None:
        """End every call, question and stream, then the transport. Bounded by the transport's own bound."""
        self.on_lost(Unreachable(reason))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await self.transport.close()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the link at the latest."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _build_rpc_error(failure: RpcFailure) -> RpcError:
    """What the server said; of words without end, head and tail."""
    told = "" if failure.data is None else to_readable_json(failure.data)
    data = (
        failure.data
        if len(told) <= _MAX_ERROR_CHARACTERS
        else truncate_middle(told, _MAX_ERROR_CHARACTERS, None)
    )
    return RpcError(failure.code, truncate_middle(failure.message, _MAX_ERROR_CHARACTERS, None), data)


def _error_for_pending_call(error: ServerError) -> ServerError:
    """What a request hears that was sent: of the end of its link, never that nothing was executed."""
    kind = OutcomeUnknown if isinstance(error, Unreachable) else type(error)
    return kind(error.cause, hint=error.hint)
