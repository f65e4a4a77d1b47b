"""Continuation of suspended calls on another replica: answers go there as messages, and the outcome comes
back.

A call to a server with sessions is suspended in the process that made it (``suspended_call``), and the
client's next round may reach any other process. The host of the call writes at least every few seconds while
it works on a round; if it is silent for longer, it is gone, and so is the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolyard.concurrency.tasks import BackgroundTasks, cancel_tasks
from toolyard.errors import RpcError, ServerError, ToolyardError
from toolyard.gateway.error_responses import RpcErrorResponse, error_to_failure
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.gateway.input_required.suspended_call import CALL_ID_KEY, MultiRoundCall, SuspendedCalls
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INTERNAL_ERROR
from toolyard.protocol.eras import ERAS, find_era
from toolyard.protocol.jsonrpc import Message, RpcFailure
from toolyard.types.json_values import object_or_empty

__all__ = [
    "HEARTBEAT_SECONDS",
    "Mailbox",
    "PostMessage",
    "RemoteCalls",
    "RemoteRoundExecutor",
    "RoundOutcome",
]


HEARTBEAT_SECONDS = 3.0
"""Interval at which the host of a call writes."""
_SHUTDOWN_SECONDS = 2.0
"""Time for sending the last messages when this process ends."""
_MAX_UNSENT_NOTIFICATIONS = 1000
"""Maximum number of unsent notifications; further ones are dropped."""
_NOTIFICATIONS_KEY = "told"
"""Key of the notifications in a message between replicas, which may run different versions."""


class PostMessage(Protocol):
    """Puts a message into a mailbox. Raises ToolyardError."""

    async def __call__(self, mailbox_name: str, message: bytes) -> None: ...


class RemoteRoundExecutor:
    """Executes rounds for other replicas, and writes to each round's mailbox: notifications, heartbeats and
    the outcome."""

    def __init__(
        self,
        suspended_calls: SuspendedCalls,
        post_message: PostMessage,
        redact_error: Callable[[ServerError], None],
        heartbeat_seconds: float,
    ) -> None:
        """``redact_error`` removes secrets from an error."""
        self._heartbeat_seconds = heartbeat_seconds
        self._suspended_calls = suspended_calls
        self._post_message = post_message
        self._redact_error = redact_error
        self.running_rounds: dict[str, asyncio.Task[None]] = {}
        """Tasks by round id."""

    def handle_messages(self, messages: Sequence[bytes]) -> None:
        """Handle requests from other replicas."""
        for message in messages:
            body: dict[str, Any] = decode(message)
            round_id = str(body.get("round"))
            if "left" not in body:
                task = asyncio.get_running_loop().create_task(self._run_round(round_id, body))
                self.running_rounds[round_id] = task
                task.add_done_callback(lambda done, round_id=round_id: self._on_round_done(round_id, done))
            elif (task := self.running_rounds.get(round_id)) is not None:
                task.cancel()

    def _on_round_done(self, round_id: str, task: asyncio.Task[None]) -> None:
        self.running_rounds.pop(round_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a request from another replica could not be answered", exc_info=error)

    async def _run_round(self, round_id: str, body: dict[str, Any]) -> None:
        unsent: list[Message] = []
        more = asyncio.Event()

        def queue_message(message: Message) -> None:
            if len(unsent) < _MAX_UNSENT_NOTIFICATIONS:
                unsent.append(message)
            more.set()

        request = _decode_request(body, queue_message)
        try:
            end = asyncio.ensure_future(
                self._await_outcome(self._suspended_calls.find(body[CALL_ID_KEY]), request)
            )
            try:
                # The first message is sent at once, even if empty. It tells the other side that this process
                # lives.
                while not end.done():
                    message = encode({_NOTIFICATIONS_KEY: unsent})
                    # More notifications may be added while these are written.
                    unsent.clear()
                    more.clear()
                    await self._post_message(round_id, message)
                    waking = asyncio.ensure_future(more.wait())
                    await asyncio.wait(
                        (end, waking),
                        timeout=self._heartbeat_seconds,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    waking.cancel()
            except BaseException:
                end.cancel()
                raise
            await self._post_message(round_id, encode({_NOTIFICATIONS_KEY: unsent, "end": end.result()}))
        finally:
            request.is_finished = True

    async def _await_outcome(self, call: MultiRoundCall | None, request: ClientRequest) -> dict[str, Any]:
        """Return the outcome of a round, encoded for the replica that asked."""
        if call is None or call.task is None:
            return {"gone": True}
        call.receive_round(request)
        try:
            result = await call.wait_for_outcome(call.task)
        except asyncio.CancelledError:
            # The call was cancelled here, by a timeout or a shutdown, not this round.
            if call.task.cancelled():
                return {"gone": True}
            raise
        except (ToolyardError, RpcErrorResponse) as error:
            failure = self._to_failure(error)
            return {"failure": [failure.code, failure.message, failure.data]}
        except Exception as error:
            # The outermost boundary of a request, as in the endpoint.
            log.exception("%s failed unexpectedly", request.method)
            words = f"unexpected error: {type(error).__name__}"
            return {"failure": [INTERNAL_ERROR, words, None]}
        return {"asks": call.input_requests()} if result is None else {"result": result}

    def _to_failure(self, error: ToolyardError | RpcErrorResponse) -> RpcFailure:
        if isinstance(error, RpcErrorResponse):
            return error.failure
        if isinstance(error, ServerError):
            self._redact_error(error)
        return error_to_failure(error)

    async def close(self) -> None:
        """Report the outcome of open rounds, after the calls themselves have been ended."""
        tasks = list(self.running_rounds.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)
        await cancel_tasks(tasks)


def _decode_request(body: dict[str, Any], send_to_client: Callable[[Message], None]) -> ClientRequest:
    return ClientRequest(
        body["method"],
        body["params"],
        # A replica of an older version names no era.
        find_era(body.get("era")) or ERAS[0],
        send_to_client,
        body["capabilities"],
        body["level"],
        body["token"],
        meta=object_or_empty(body["params"].get("_meta")),
    )


log = logging.getLogger("toolyard.gateway")

_HOST_TIMEOUT_SECONDS = 15.0
"""Time without a message after which the host of a call counts as gone."""


class Mailbox(Protocol):
    """Messages between replicas. Raises ToolyardError."""

    async def post(self, mailbox_name: str, message: bytes) -> None:
        """Put a message into a mailbox."""
        ...

    async def take(self, mailbox_name: str) -> Sequence[bytes]:
        """Remove and return the messages of a mailbox, the oldest first."""
        ...

    def watch_mailbox_names(self) -> AsyncGenerator[str]:
        """Yield the names of mailboxes that receive messages; the empty name stands for any."""
        ...


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """Outcome of a round: the result of the call, or questions for the client."""

    result: dict[str, Any] | None = None
    input_requests: dict[str, Any] = field(default_factory=dict[str, Any])


class RemoteCalls:
    """Remote calls of one process. ``run`` reads its messages. The mailbox is None without replicas."""

    def __init__(
        self,
        suspended_calls: SuspendedCalls,
        mailbox: Mailbox | None,
        redact_error: Callable[[ServerError], None],
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        host_timeout_seconds: float = _HOST_TIMEOUT_SECONDS,
    ) -> None:
        """``redact_error`` removes secrets from an error."""
        self.heartbeat_seconds = heartbeat_seconds
        self.host_timeout_seconds = host_timeout_seconds
        self.replica_id = secrets.token_urlsafe(12)
        """Id of this process, and the name of its mailbox."""
        self._mailbox = mailbox
        self.call_host = (
            None
            if mailbox is None
            else RemoteRoundExecutor(suspended_calls, mailbox.post, redact_error, heartbeat_seconds)
        )
        self._round_events: dict[str, asyncio.Event] = {}
        """Rounds that were sent to another replica; each has its own mailbox."""
        self._cancel_tasks = BackgroundTasks()

    async def continue_call(self, host_id: object, call_id: object, request: ClientRequest) -> RoundOutcome:
        """Continue a call that is suspended on another replica.

        Raises what the call raises, and RpcErrorResponse if its host is gone.
        """
        if self._mailbox is None or not isinstance(host_id, str) or host_id == self.replica_id:
            raise _call_lost_error()
        # A mailbox of its own for each round, with a name that cannot be guessed: messages of an earlier
        # round that was given up cannot be taken for those of this one.
        round_id = secrets.token_urlsafe(12)
        heard = self._round_events[round_id] = asyncio.Event()
        try:
            await self._mailbox.post(host_id, encode(_encode_round(round_id, call_id, request)))
            return await self._await_outcome(self._mailbox, round_id, heard, request)
        except asyncio.CancelledError:
            # The client has disconnected, so no answer will come: cancel the call on its host.
            self._cancel_tasks.spawn(self._cancel_round(self._mailbox, host_id, round_id))
            raise
        finally:
            del self._round_events[round_id]

    async def _await_outcome(
        self, mail: Mailbox, round_id: str, heard: asyncio.Event, request: ClientRequest
    ) -> RoundOutcome:
        last = time.monotonic()
        while time.monotonic() - last < self.host_timeout_seconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.heartbeat_seconds):
                    await heard.wait()
            heard.clear()
            # A notification may be lost, a message is not: read the mailbox in any case.
            for data in await mail.take(round_id):
                # Any message counts as a heartbeat, even one without notifications.
                last, said = time.monotonic(), decode(data)
                for message in said[_NOTIFICATIONS_KEY]:
                    request.send_to_client(message)
                if (end := said.get("end")) is not None:
                    return _decode_outcome(end)
        raise _call_lost_error()

    async def _cancel_round(self, mail: Mailbox, holder: str, round_id: str) -> None:
        with contextlib.suppress(ToolyardError):
            await mail.post(holder, encode({"round": round_id, "left": True}))

    async def run(self) -> None:
        """Read messages until cancelled."""
        if self._mailbox is None:
            return
        async with aclosing(self._mailbox.watch_mailbox_names()) as listening:
            async for mailbox_name in listening:
                for waiting in (
                    self._round_events.values()
                    if mailbox_name == ""
                    else (self._round_events.get(mailbox_name),)
                ):
                    if waiting is not None:
                        waiting.set()
                if mailbox_name in ("", self.replica_id):
                    await self._read_messages(self._mailbox)

    async def _read_messages(self, mail: Mailbox) -> None:
        try:
            messages = await mail.take(self.replica_id)
        except ToolyardError as error:
            log.warning("messages from other replicas cannot be read: %s", error.cause)
        else:
            assert self.call_host is not None
            self.call_host.handle_messages(messages)

    async def close(self) -> None:
        """Send what is left to send."""
        if self.call_host is not None:
            await self.call_host.close()
        await self._cancel_tasks.wait()


def _call_lost_error() -> RpcErrorResponse:
    """Return the error for a call whose host is gone."""
    return RpcErrorResponse(
        INTERNAL_ERROR,
        "the call that waited for this answer has ended; it is not known whether it was executed",
        {"kind": "outcome_unknown"},
    )


def _encode_round(round_id: str, call_id: object, request: ClientRequest) -> dict[str, Any]:
    return {
        "round": round_id,
        CALL_ID_KEY: call_id,
        "method": request.method,
        "params": request.params,
        "capabilities": dict(request.capabilities),
        "level": request.log_level,
        "era": request.era.name,
        "token": request.progress_token,
    }


def _decode_outcome(end: dict[str, Any]) -> RoundOutcome:
    """Decode the outcome of a round. Raises it if it is a failure."""
    if "failure" in end:
        raise RpcError(*end["failure"])
    if "gone" in end:
        raise _call_lost_error()
    return RoundOutcome(end.get("result"), end.get("asks") or {})
