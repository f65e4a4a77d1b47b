"""Rounds that came to other replicas, of calls that wait at this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from toolyard.errors import ServerError, ToolyardError
from toolyard.gateway.client_request import Request
from toolyard.gateway.error_responses import Refusal, failure_of
from toolyard.gateway.input_required.suspended_call import Parked, ParkedCalls
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INTERNAL_ERROR
from toolyard.protocol.pending import Failure, Message

__all__ = ["ALIVE", "Holding", "Post"]

log = logging.getLogger("toolyard.gateway")

ALIVE = 3.0
"""Seconds after which whoever holds a call writes again."""
_LAST_WORDS = 2.0
"""Seconds for the letters that are written when this process ends."""
_TOLD = 1000
"""Notifications that wait to be written; beyond them they are dropped."""


class Post(Protocol):
    """Puts a letter into a box. Raises a ToolyardError."""

    async def __call__(self, box: str, letter: bytes) -> None: ...


class Holding:
    """Works on them, and writes what comes of it into the box of each round: what the server tells as it
    comes, at least a sign of life every few seconds, and the end."""

    def __init__(self, parked: ParkedCalls, post: Post, hush: Callable[[ServerError], None]) -> None:
        """``hush`` takes secrets out of an error."""
        self._parked = parked
        self._post = post
        self._hush = hush
        self.working: dict[str, asyncio.Task[None]] = {}
        """By round."""

    def take(self, letters: Sequence[bytes]) -> None:
        """What other replicas want."""
        for letter in letters:
            order: dict[str, Any] = decode(letter)
            round_id = str(order.get("round"))
            if "left" not in order:
                task = asyncio.get_running_loop().create_task(self._work(round_id, order))
                self.working[round_id] = task
                task.add_done_callback(lambda done, round_id=round_id: self._done(round_id, done))
            elif (task := self.working.get(round_id)) is not None:
                task.cancel()

    def _done(self, round_id: str, task: asyncio.Task[None]) -> None:
        self.working.pop(round_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("a round of another replica could not be answered", exc_info=error)

    async def _work(self, round_id: str, order: dict[str, Any]) -> None:
        told: list[Message] = []
        more = asyncio.Event()

        def tell(message: Message) -> None:
            if len(told) < _TOLD:
                told.append(message)
            more.set()

        request = _request(order, tell)
        try:
            end = asyncio.ensure_future(self._end(self._parked.find(order["parked"]), request))
            try:
                while not end.done():
                    letter = encode({"told": told})
                    # More may be told while this is written.
                    told.clear()
                    more.clear()
                    await self._post(round_id, letter)
                    waking = asyncio.ensure_future(more.wait())
                    await asyncio.wait((end, waking), timeout=ALIVE, return_when=asyncio.FIRST_COMPLETED)
                    waking.cancel()
            except BaseException:
                end.cancel()
                raise
            await self._post(round_id, encode({"told": told, "end": end.result()}))
        finally:
            request.over = True

    async def _end(self, parked: Parked | None, request: Request) -> dict[str, Any]:
        """How a round ends, for whoever it came to."""
        if parked is None or parked.task is None:
            return {"gone": True}
        parked.take(request)
        try:
            result = await parked.outcome(parked.task)
        except asyncio.CancelledError:
            if parked.task.cancelled():
                return {"gone": True}
            raise
        except (ToolyardError, Refusal) as error:
            failure = self._failure(error)
            return {"failure": [failure.code, failure.message, failure.data]}
        except Exception as error:
            # The top of a request, as at the front.
            log.exception("%s failed in an unforeseen way", request.method)
            words = f"failed in an unforeseen way: {type(error).__name__}"
            return {"failure": [INTERNAL_ERROR, words, None]}
        return {"asks": parked.input_requests()} if result is None else {"result": result}

    def _failure(self, error: ToolyardError | Refusal) -> Failure:
        if isinstance(error, Refusal):
            return error.failure
        if isinstance(error, ServerError):
            self._hush(error)
        return failure_of(error)

    async def close(self) -> None:
        """Say how the rounds ended, after the calls themselves were ended."""
        tasks = list(self.working.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_WORDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request(order: dict[str, Any], tell: Callable[[Message], None]) -> Request:
    return Request(
        order["method"],
        order["params"],
        True,
        tell,
        order["capabilities"],
        order["level"],
        order["token"],
    )
