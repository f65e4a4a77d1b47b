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
from toolyard.gateway.client_request import Request
from toolyard.gateway.error_responses import Refusal
from toolyard.gateway.input_required.call_host import ALIVE, Holding
from toolyard.gateway.input_required.suspended_call import ParkedCalls
from toolyard.protocol.codec import decode, encode
from toolyard.protocol.constants import INTERNAL_ERROR

__all__ = ["Handing", "Mail", "Outcome"]

log = logging.getLogger("toolyard.gateway")

_SILENCE = 15.0
"""Seconds without a letter after which whoever holds a call counts as gone."""


class Mail(Protocol):
    """Letters between replicas. Raises a ToolyardError."""

    async def post(self, box: str, letter: bytes) -> None:
        """Put a letter into a box."""
        ...

    async def take(self, box: str) -> Sequence[bytes]:
        """Take out what is in a box, the oldest first."""
        ...

    def listen(self) -> AsyncGenerator[str]:
        """The boxes that get letters; the empty name means any."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a round: the result of the call, or what the client is asked."""

    result: dict[str, Any] | None = None
    asks: dict[str, Any] = field(default_factory=dict[str, Any])


class Handing:
    """For one process. ``run`` reads its letters; without mail there is nobody else."""

    def __init__(self, parked: ParkedCalls, mail: Mail | None, hush: Callable[[ServerError], None]) -> None:
        """``hush`` takes secrets out of an error."""
        self.me = secrets.token_urlsafe(12)
        """This process, for others: the box of what it holds."""
        self._mail = mail
        self.holding = None if mail is None else Holding(parked, mail.post, hush)
        self._waiting: dict[str, asyncio.Event] = {}
        """Rounds that were handed over, each with a box of its own."""
        self._leaving: set[asyncio.Task[None]] = set()

    async def hand_over(self, holder: object, parked_id: object, request: Request) -> Outcome:
        """Another round of a call that waits elsewhere. Raises what the call raises, and Refusal where nobody
        holds it any more."""
        if self._mail is None or not isinstance(holder, str) or holder == self.me:
            raise _gone()
        round_id = secrets.token_urlsafe(12)
        heard = self._waiting[round_id] = asyncio.Event()
        try:
            await self._mail.post(holder, encode(_order(round_id, parked_id, request)))
            return await self._outcome(self._mail, round_id, heard, request)
        except asyncio.CancelledError:
            # Whoever asked is gone: nobody will answer.
            task = asyncio.get_running_loop().create_task(self._leave(self._mail, holder, round_id))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
            raise
        finally:
            del self._waiting[round_id]

    async def _outcome(self, mail: Mail, round_id: str, heard: asyncio.Event, request: Request) -> Outcome:
        last = time.monotonic()
        while time.monotonic() - last < _SILENCE:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(heard.wait(), ALIVE)
            heard.clear()
            # A word may be lost, a letter is not.
            for letter in await mail.take(round_id):
                last, said = time.monotonic(), decode(letter)
                for message in said["told"]:
                    request.tell(message)
                if (end := said.get("end")) is not None:
                    return _ended(end)
        raise _gone()

    async def _leave(self, mail: Mail, holder: str, round_id: str) -> None:
        with contextlib.suppress(ToolyardError):
            await mail.post(holder, encode({"round": round_id, "left": True}))

    async def run(self) -> None:
        """Read letters, until this is cancelled."""
        if self._mail is None:
            return
        async with aclosing(self._mail.listen()) as listening:
            async for box in listening:
                for waiting in self._waiting.values() if box == "" else (self._waiting.get(box),):
                    if waiting is not None:
                        waiting.set()
                if box in ("", self.me):
                    await self._read(self._mail)

    async def _read(self, mail: Mail) -> None:
        try:
            letters = await mail.take(self.me)
        except ToolyardError as error:
            log.warning("letters of other replicas cannot be read: %s", error.cause)
        else:
            assert self.holding is not None
            self.holding.take(letters)

    async def close(self) -> None:
        """Say what there is still to say."""
        if self.holding is not None:
            await self.holding.close()
        await asyncio.gather(*self._leaving)


def _gone() -> Refusal:
    """What is said of a call that nobody holds any more."""
    return Refusal(
        INTERNAL_ERROR,
        "the call that waited for this answer is gone; whether it was carried out is unknown",
        {"kind": "outcome_unknown"},
    )


def _order(round_id: str, parked_id: object, request: Request) -> dict[str, Any]:
    return {
        "round": round_id,
        "parked": parked_id,
        "method": request.method,
        "params": request.params,
        "capabilities": dict(request.capabilities),
        "level": request.log_level,
        "token": request.progress_token,
    }


def _ended(end: dict[str, Any]) -> Outcome:
    """What a letter says of the end. Raises it, where it is a failure."""
    if "failure" in end:
        raise RpcError(*end["failure"])
    if "gone" in end:
        raise _gone()
    return Outcome(end.get("result"), end.get("asks") or {})
