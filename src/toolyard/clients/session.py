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

from toolyard.clients.callbacks import Callbacks, NotOffered
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
from toolyard.protocol.client import Facts, Speaker
from toolyard.protocol.constants import INTERNAL_ERROR, METHOD_NOT_FOUND
from toolyard.protocol.framing import Line, Oversize
from toolyard.protocol.id_recovery import answered_id, has_method_first
from toolyard.protocol.pending import (
    Answer,
    Asked,
    Cancelled,
    Exchange,
    Failure,
    Id,
    Message,
    Progressed,
    Stray,
    Told,
    error_message,
    notification,
    request,
    result_message,
)
from toolyard.results.readable_json import readable
from toolyard.results.truncation import shorten
from toolyard.transports.transport import Transport

__all__ = ["Link", "OnProgress", "Patience"]

log = logging.getLogger("toolyard.link")

OnProgress: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None] | None]
"""Told each progress notification of a call. May be a coroutine function."""

_QUESTIONS = 64
"""Questions of a server that are answered at the same time; more are refused."""
_REPLIES = 256
"""Pings and refusals that wait to be sent, one after another; more are not answered."""
_WORDS = 100_000
"""Characters of a server's error, which is searched for secrets wherever it comes by."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long without answer or progress, and how long at all."""

    silence: float
    cap: float


class _Call:
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
        self.wind(asyncio.get_running_loop().time())

    def wind(self, when: float) -> None:
        if self.clock is not None:
            # The clock may be ringing this very moment.
            with contextlib.suppress(RuntimeError):
                self.clock.reschedule(min(when, self.cap))


class Link:
    """Owns a transport and everything in flight on it. Made, opened and closed by one owner task."""

    def __init__(
        self,
        server: str,
        transport: Transport,
        speaker: Speaker,
        callbacks: Callbacks,
        limits: TrafficLimits = TrafficLimits(),  # noqa: B008 - frozen
        *,
        questions_per_minute: int = 120,
    ) -> None:
        self.server = server
        self.transport = transport
        self.speaker = speaker
        self.facts: Facts | None = None
        self.strays = 0
        self.users = 0
        """Calls that its owner has running on it."""
        self.on_told: Callable[[str, Mapping[str, Any]], None] | None = None
        self.on_over: Callable[[Link, ServerError], None] | None = None
        self.flooded = False
        """Whether it ended because the server exceeded the traffic limits."""
        self._limits = limits
        self._traffic = TrafficMeter(limits)
        self._callbacks = callbacks
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange[_Call] = Exchange()
        self._questions: dict[Id, asyncio.Task[None]] = {}
        self._replies: deque[Message] = deque()
        self._asked_at: deque[float] = deque(maxlen=questions_per_minute)
        """When the server asked its last questions, on the clock of the loop."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over: ServerError | None = None
        self.ended: asyncio.Future[ServerError] = self._loop.create_future()
        """Done when the other side is lost, with the reason."""

    @property
    def over(self) -> bool:
        return self._over is not None

    @property
    def given_up(self) -> bool:
        """Whether it ended because we closed it, and not the other side."""
        return isinstance(self._over, Unreachable)

    @property
    def in_flight(self) -> int:
        return len(self._exchange)

    async def open(self) -> None:
        """Make the way. Raises a ServerError; ``close`` must be called in any case."""
        await self.transport.open(self)

    # Out.

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        patience: Patience,
        *,
        progress: bool = False,
        on_progress: OnProgress | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        log_level: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of one request. Ends with a ServerError at the latest when patience does."""
        if self._over is not None:
            raise Unreachable(self._over.cause, hint=self._over.hint)
        call = _Call(self._loop.create_future(), patience.silence, on_progress)
        id = self._exchange.ask(call, method)
        if method == "initialize":
            stamped = dict(params or {})
        else:
            token = id if progress or on_progress is not None else None
            stamped = self.speaker.params(
                params, progress_token=token, log_level=log_level, meta=meta, capabilities=capabilities
            )
        now = self._loop.time()
        call.cap = now + patience.cap
        try:
            async with asyncio.timeout_at(min(now + patience.silence, call.cap)) as call.clock:
                await self.transport.send(request(id, method, stamped), headers)
                return await call.future
        except TimeoutError:
            self._withdraw(id, method, "timed out")
            if call.failure is not None:
                raise call.failure from None
            raise self._timed_out(call, patience, method) from None
        except asyncio.CancelledError:
            self._withdraw(id, method, "cancelled by the caller")
            raise
        finally:
            self._exchange.forget(id)
            if call.failure is not None and call.future.done():
                call.future.exception()
            # An error keeps this frame, and what the call has leads back to the error: its future, its task.
            del call

    def _timed_out(self, call: _Call, patience: Patience, method: str) -> CallTimeout:
        if self._loop.time() >= call.cap:
            return CallTimeout(
                f"{method} took longer than {patience.cap:g} s in all",
                hint="raise 'timeouts.call' if it needs longer",
            )
        return CallTimeout(
            f"{method}: neither answer nor progress for {patience.silence:g} s",
            hint="raise 'timeouts.silence' if it needs longer",
        )

    async def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification and wait until it is gone. Raises a ServerError."""
        await self.transport.send(notification(method, params))

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, whenever that goes. Failures are nobody's concern."""
        self.spawn(self._send_quietly(notification(method, params)))

    def _withdraw(self, id: int, method: str, reason: str) -> None:
        waiting = self._exchange.forget(id)
        if waiting and self._over is None and method != "initialize" and not self.transport.closing_cancels:
            self.notify("notifications/cancelled", {"requestId": id, "reason": reason})

    async def _send_quietly(self, message: Message) -> None:
        try:
            async with asyncio.timeout(10):
                await self.transport.send(message)
        except (ServerError, TimeoutError) as error:
            log.debug("%s: could not be told: %s", self.server, error)

    # In.

    def accepts(self, undecoded: Line) -> bool:
        size = undecoded.size if isinstance(undecoded, Oversize) else len(undecoded)
        if size <= self._limits.message_bytes:
            return True
        id = answered_id(undecoded)
        accepted = self._exchange.awaits(id) if id is not None else not has_method_first(undecoded)
        if not accepted:
            self._counts(size)
        return accepted

    def _counts(self, size: int, *, progress: bool = False) -> bool:
        """Count a message that answers no request. Return whether it is taken in: the connection is not over,
        the limits are kept, and it is not too large itself."""
        if self._over is not None:
            return False
        exceeded = self._traffic.count(size, self._loop.time(), progress=progress)
        if exceeded is not None:
            self.flooded = True
            self.on_lost(OutcomeUnknown(exceeded))
            return False
        if size > self._limits.message_bytes:
            self._stray(Stray(f"a message of {size:,} bytes that answers no request"))
            return False
        return True

    def on_message(self, message: object, size: int = 0) -> None:
        for event in self._exchange.receive_all(message):
            if isinstance(event, Answer):
                self._answered(event)
                continue
            if not self._counts(size, progress=isinstance(event, Progressed)):
                return
            size = 0  # The messages of a batch share its size.
            if isinstance(event, Progressed):
                self._progressed(event.token, event.params)
            elif isinstance(event, Told):
                self._told(event)
            elif isinstance(event, Asked):
                self._asked(event)
            elif isinstance(event, Cancelled):
                if (task := self._questions.get(event.id)) is not None:
                    task.cancel()
            else:
                self._stray(event)

    def _answered(self, event: Answer[_Call]) -> None:
        future = event.token.future
        if future.done():
            return
        if event.failure is None:
            future.set_result(event.result or {})
        elif event.failure.code == 0:
            future.set_exception(BadAnswer(event.failure.message))
        else:
            future.set_exception(_rpc_error(event.failure))

    def _progressed(self, call: _Call, params: dict[str, Any]) -> None:
        call.wind(self._loop.time() + call.silence)
        if call.on_progress is not None:
            self._call_back(call.on_progress, params)

    def _told(self, event: Told) -> None:
        if event.method != "notifications/message":
            self.tell_owner(event.method, event.params)
        elif self._callbacks.log is not None:
            self._call_back(self._callbacks.log, self.server, event.params)

    def tell_owner(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass a notification on to whoever wants to know."""
        if self.on_told is not None:
            self._call_back(self.on_told, method, params)
        if self._callbacks.notification is not None:
            self._call_back(self._callbacks.notification, self.server, method, params)

    def _call_back(self, function: Callable[..., Any], *arguments: Any) -> None:
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

    def _stray(self, event: Stray) -> None:
        self.strays += 1
        if self.strays <= 3:
            log.debug("%s: skipped %s", self.server, event.reason)

    # Questions of the server, in the legacy era.

    def _asked(self, event: Asked) -> None:
        if event.echo:
            self.on_lost(BadAnswer("repeats what it is sent; is it an MCP server?"))
        elif self.facts is not None and self.facts.modern:
            self._stray(Stray(f"{event.method}: a request, which the modern era does not have"))
        elif event.method == "ping":
            self._reply(result_message(event.id, {}))
        elif len(self._questions) >= _QUESTIONS or event.id in self._questions:
            self._reply(error_message(event.id, INTERNAL_ERROR, "too many requests at the same time"))
        elif self._asks_too_often():
            self._reply(error_message(event.id, INTERNAL_ERROR, "too many requests in one minute"))
        else:
            self._hold_clocks()
            task = self.spawn(self._answer(event))
            self._questions[event.id] = task
            task.add_done_callback(lambda _: self._question_done(event.id))

    def _asks_too_often(self) -> bool:
        """Count one more question. A server that cancels its own questions could otherwise ask without end,
        and each may reach a person or cost a model request."""
        now, times = self._loop.time(), self._asked_at
        if len(times) == times.maxlen and now - times[0] < 60:
            return True
        times.append(now)
        return False

    def _reply(self, message: Message) -> None:
        """Answer at once, on one connection at most: a server that asks without end, and takes no answer,
        would otherwise cost everyone else theirs."""
        if len(self._replies) >= _REPLIES:
            self._stray(Stray("a request, while too many answers wait to be sent"))
            return
        self._replies.append(message)
        if len(self._replies) == 1:
            self.spawn(self._send_replies())

    async def _send_replies(self) -> None:
        while self._replies:
            await self._send_quietly(self._replies[0])
            self._replies.popleft()

    async def _answer(self, event: Asked) -> None:
        try:
            result = await self._callbacks.answer(self.server, event.method, event.params)
            message = result_message(event.id, result)
        except NotOffered:
            message = error_message(event.id, METHOD_NOT_FOUND, f"{event.method} is not offered")
        except ToolyardError as error:
            # Somebody said no, in words that are meant for others, or a callback failed.
            message = error_message(event.id, INTERNAL_ERROR, error.cause)
        await self._send_quietly(message)

    def _hold_clocks(self) -> None:
        """While the server waits for us, its silence is ours."""
        for call in self._exchange.tokens():
            call.wind(call.cap)

    def _question_done(self, id: Id) -> None:
        self._questions.pop(id, None)
        if not self._questions:
            now = self._loop.time()
            for call in self._exchange.tokens():
                call.wind(now + call.silence)

    # The end.

    def on_lost(self, error: ServerError) -> None:
        if self._over is not None:
            return
        self._over = error
        for call in self._exchange.tokens():
            call.fail(_in_flight(error))
        if not self.ended.done():
            self.ended.set_result(error)
        if self.on_over is not None:
            self.on_over(self, error)

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

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with the link at the latest."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _rpc_error(failure: Failure) -> RpcError:
    """What the server said; of words without end, head and tail."""
    told = "" if failure.data is None else readable(failure.data)
    data = failure.data if len(told) <= _WORDS else shorten(told, _WORDS, None)
    return RpcError(failure.code, shorten(failure.message, _WORDS, None), data)


def _in_flight(error: ServerError) -> ServerError:
    """What a request hears that was sent: of the end of its link, never that nothing was executed."""
    kind = OutcomeUnknown if isinstance(error, Unreachable) else type(error)
    return kind(error.cause, hint=error.hint)
