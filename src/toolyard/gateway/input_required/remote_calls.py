"""Rounds of calls that wait at another replica: the answers go there by letter, and what comes of it comes
back.

A call to a legacy server waits in the process that made it (``parked.py``), and the client's next round may
arrive at any other. Whoever holds the call writes at least every few seconds as long as it works on a round
(``holding.py``); one that is silent for longer is gone, and with it the call.
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

from toolyard.errors import RpcError, ServerError, ToolyardError
from toolyard.gateway.client_request import ClientRequest
from toolyard.gateway.error_responses import RpcErrorResponse
from toolyard.gateway.input_required.call_host import HEARTBEAT_SECONDS, CallHost
from toolyard.gateway.input_required.suspended_call import SuspendedCalls
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INTERNAL_ERROR

__all__ = ["Mailbox", "RemoteCalls", "RoundOutcome"]

log = logging.getLogger("toolyard.gateway")

_HOST_TIMEOUT_SECONDS = 15.0
"""Seconds without a letter after which whoever holds a call counts as gone."""


class Mailbox(Protocol):
    """Letters between replicas. Raises a ToolyardError."""

    async def post(self, box: str, message: bytes) -> None:
        """Put a letter into a box."""
        ...

    async def take(self, box: str) -> Sequence[bytes]:
        """Take out what is in a box, the oldest first."""
        ...

    def listen(self) -> AsyncGenerator[str]:
        """The boxes that get letters; the empty name means any."""
        ...


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """What came of a round: the result of the call, or what the client is asked."""

    result: dict[str, Any] | None = None
    asks: dict[str, Any] = field(default_factory=dict[str, Any])


class RemoteCalls:
    """For one process. ``run`` reads its letters; without mail there is nobody else."""

    def __init__(
        self,
        suspended_calls: SuspendedCalls,
        mailbox: Mailbox | None,
        redact_error: Callable[[ServerError], None],
    ) -> None:
        """``hush`` takes secrets out of an error."""
        self.me = secrets.token_urlsafe(12)
        """This process, for others: the box of what it holds."""
        self._mailbox = mailbox
        self.call_host = None if mailbox is None else CallHost(suspended_calls, mailbox.post, redact_error)
        self._round_events: dict[str, asyncio.Event] = {}
        """Rounds that were handed over, each with a box of its own."""
        self._cancel_tasks: set[asyncio.Task[None]] = set()

    async def continue_call(self, host_id: object, call_id: object, request: ClientRequest) -> RoundOutcome:
        """Another round of a call that waits elsewhere. Raises what the call raises, and Refusal where nobody
        holds it any more."""
        if self._mailbox is None or not isinstance(host_id, str) or host_id == self.me:
            raise _call_lost_error()
        round_id = secrets.token_urlsafe(12)
        heard = self._round_events[round_id] = asyncio.Event()
        try:
            await self._mailbox.post(host_id, encode(_encode_round(round_id, call_id, request)))
            return await self._await_outcome(self._mailbox, round_id, heard, request)
        except asyncio.CancelledError:
            # Whoever asked is gone: nobody will answer.
            task = asyncio.get_running_loop().create_task(
                self._cancel_round(self._mailbox, host_id, round_id)
            )
            self._cancel_tasks.add(task)
            task.add_done_callback(self._cancel_tasks.discard)
            raise
        finally:
            del self._round_events[round_id]

    async def _await_outcome(
        self, mail: Mailbox, round_id: str, heard: asyncio.Event, request: ClientRequest
    ) -> RoundOutcome:
        last = time.monotonic()
        while time.monotonic() - last < _HOST_TIMEOUT_SECONDS:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), HEARTBEAT_SECONDS)
            heard.clear()
            # A word may be lost, a letter is not.
            for letter in await mail.take(round_id):
                last, said = time.monotonic(), decode(letter)
                for message in said["told"]:
                    request.send_to_client(message)
                if (end := said.get("end")) is not None:
                    return _decode_outcome(end)
        raise _call_lost_error()

    async def _cancel_round(self, mail: Mailbox, holder: str, round_id: str) -> None:
        with contextlib.suppress(ToolyardError):
            await mail.post(holder, encode({"round": round_id, "left": True}))

    async def run(self) -> None:
        """Read letters, until this is cancelled."""
        if self._mailbox is None:
            return
        async with aclosing(self._mailbox.listen()) as listening:
            async for box in listening:
                for waiting in self._round_events.values() if box == "" else (self._round_events.get(box),):
                    if waiting is not None:
                        waiting.set()
                if box in ("", self.me):
                    await self._read_messages(self._mailbox)

    async def _read_messages(self, mail: Mailbox) -> None:
        try:
            letters = await mail.take(self.me)
        except ToolyardError as error:
            log.warning("letters of other replicas cannot be read: %s", error.cause)
        else:
            assert self.call_host is not None
            self.call_host.handle_messages(letters)

    async def close(self) -> None:
        """Say what there is still to say."""
        if self.call_host is not None:
            await self.call_host.close()
        await asyncio.gather(*self._cancel_tasks)


def _call_lost_error() -> RpcErrorResponse:
    """What is said of a call that nobody holds any more."""
    return RpcErrorResponse(
        INTERNAL_ERROR,
        "the call that waited for this answer is gone; whether it was carried out is unknown",
        {"kind": "outcome_unknown"},
    )


def _encode_round(round_id: str, parked_id: object, request: ClientRequest) -> dict[str, Any]:
    return {
        "round": round_id,
        "parked": parked_id,
        "method": request.method,
        "params": request.params,
        "capabilities": dict(request.capabilities),
        "level": request.log_level,
        "token": request.progress_token,
    }


def _decode_outcome(end: dict[str, Any]) -> RoundOutcome:
    """What a letter says of the end. Raises it, where it is a failure."""
    if "failure" in end:
        raise RpcError(*end["failure"])
    if "gone" in end:
        raise _call_lost_error()
    return RoundOutcome(end.get("result"), end.get("asks") or {})
