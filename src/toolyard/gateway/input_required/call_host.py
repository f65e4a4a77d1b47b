"""Rounds that came to other replicas, of calls that wait at this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.client_request import ClientRequest
from toolyard.gateway.error_responses import RpcErrorResponse, error_to_failure
from toolyard.gateway.input_required.suspended_call import SuspendedCall, SuspendedCalls
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INTERNAL_ERROR
from toolyard.protocol.pending import Message, RpcFailure

__all__ = ["HEARTBEAT_SECONDS", "CallHost", "PostMessage"]

log = logging.getLogger("toolyard.gateway")

HEARTBEAT_SECONDS = 3.0
"""Seconds after which whoever holds a call writes again."""
_SHUTDOWN_SECONDS = 2.0
"""Seconds for the letters that are written when this process ends."""
_MAX_UNSENT_NOTIFICATIONS = 1000
"""Notifications that wait to be written; beyond them they are dropped."""


class PostMessage(Protocol):
    """Puts a letter into a box. Raises a ToolyardError."""

    async def __call__(self, box: str, message: bytes) -> None: ...


class CallHost:
    """Works on them, and writes what comes of it into the box of each round: what the server tells as it
    comes, at least a sign of life every few seconds, and the end."""

    def __init__(
        self,
        suspended_calls: SuspendedCalls,
        post_message: PostMessage,
        redact_error: Callable[[ServerError], None],
    ) -> None:
        """``hush`` takes secrets out of an error."""
        self._suspended_calls = suspended_calls
        self._post_message = post_message
        self._redact_error = redact_error
        self.running_rounds: dict[str, asyncio.Task[None]] = {}
        """By round."""

    def handle_messages(self, messages: Sequence[bytes]) -> None:
        """What other replicas want."""
        for letter in messages:
            order: dict[str, Any] = decode(letter)
            round_id = str(order.get("round"))
            if "left" not in order:
                task = asyncio.get_running_loop().create_task(self._run_round(round_id, order))
                self.running_rounds[round_id] = task
                task.add_done_callback(lambda done, round_id=round_id: self._on_round_done(round_id, done))
            elif (task := self.running_rounds.get(round_id)) is not None:
                task.cancel()

    def _on_round_done(self, round_id: str, task: asyncio.Task[None]) -> None:
        self.running_rounds.pop(round_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a round of another replica could not be answered", exc_info=error)

    async def _run_round(self, round_id: str, order: dict[str, Any]) -> None:
        told: list[Message] = []
        more = asyncio.Event()

        def queue_message(message: Message) -> None:
            if len(told) < _MAX_UNSENT_NOTIFICATIONS:
                told.append(message)
            more.set()

        request = _decode_request(order, queue_message)
        try:
            end = asyncio.ensure_future(
                self._await_outcome(self._suspended_calls.find(order["parked"]), request)
            )
            try:
                while not end.done():
                    letter = encode({"told": told})
                    # More may be told while this is written.
                    told.clear()
                    more.clear()
                    await self._post_message(round_id, letter)
                    waking = asyncio.ensure_future(more.wait())
                    await asyncio.wait(
                        (end, waking), timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                    )
                    waking.cancel()
            except BaseException:
                end.cancel()
                raise
            await self._post_message(round_id, encode({"told": told, "end": end.result()}))
        finally:
            request.is_finished = True

    async def _await_outcome(self, parked: SuspendedCall | None, request: ClientRequest) -> dict[str, Any]:
        """How a round ends, for whoever it came to."""
        if parked is None or parked.task is None:
            return {"gone": True}
        parked.receive_round(request)
        try:
            result = await parked.outcome(parked.task)
        except asyncio.CancelledError:
            if parked.task.cancelled():
                return {"gone": True}
            raise
        except (ToolyardError, RpcErrorResponse) as error:
            failure = self._to_failure(error)
            return {"failure": [failure.code, failure.message, failure.data]}
        except Exception as error:
            # The top of a request, as at the front.
            log.exception("%s failed in an unforeseen way", request.method)
            words = f"failed in an unforeseen way: {type(error).__name__}"
            return {"failure": [INTERNAL_ERROR, words, None]}
        return {"asks": parked.input_requests()} if result is None else {"result": result}

    def _to_failure(self, error: ToolyardError | RpcErrorResponse) -> RpcFailure:
        if isinstance(error, RpcErrorResponse):
            return error.failure
        if isinstance(error, ServerError):
            self._redact_error(error)
        return error_to_failure(error)

    async def close(self) -> None:
        """Say how the rounds ended, after the calls themselves were ended."""
        tasks = list(self.running_rounds.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _decode_request(order: dict[str, Any], tell: Callable[[Message], None]) -> ClientRequest:
    return ClientRequest(
        order["method"],
        order["params"],
        True,
        tell,
        order["capabilities"],
        order["level"],
        order["token"],
    )
