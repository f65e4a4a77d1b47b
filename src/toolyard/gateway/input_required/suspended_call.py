"""Calls of modern clients to servers of the legacy era, which wait in the middle for the client's answer.

A legacy server asks and waits. A modern client is answered ``input_required`` and asks again, with its
answers and the state that it was given. In between the call goes on here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolyard.clients.callbacks import INPUT_NAME
from toolyard.gateway.client_request import Request

__all__ = ["Parked", "ParkedCalls"]

_SETTLE = 0.03
"""Seconds after a question in which others that were asked at the same time are waited for."""


@dataclass(slots=True)
class _Question:
    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[dict[str, Any]]


class Parked:
    """One call through all its rounds. ``request`` is the round that is being answered now."""

    def __init__(self, request: Request) -> None:
        self.id = secrets.token_urlsafe(12)
        self.request = request
        self.task: asyncio.Task[dict[str, Any]] | None = None
        self._given: dict[str, dict[str, Any]] = {}
        self._questions: dict[str, _Question] = {}
        self._ripe = asyncio.Event()
        self._count = 0
        self.take(request)

    def take(self, request: Request) -> None:
        """Another round: its answers go to the questions of their names, or wait for those."""
        self.request = request
        self._ripe.clear()
        given = request.params.get("inputResponses")
        answers = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        for name, answer in answers.items():
            if not isinstance(answer, dict):
                continue
            question = self._questions.pop(name, None)
            if question is None:
                self._given[name] = cast("dict[str, Any]", answer)
            elif not question.answer.done():
                question.answer.set_result(cast("dict[str, Any]", answer))
        if self._questions:
            # Something is still not answered; the client is asked again.
            self._ripe.set()

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer to a server's question, in whichever round it comes."""
        name, params = self._named(params)
        if (given := self._given.pop(name, None)) is not None:
            return given
        loop = asyncio.get_running_loop()
        question = _Question(method, params, loop.create_future())
        self._questions[name] = question
        settled = loop.call_later(_SETTLE, self._ripe.set)
        try:
            return await question.answer
        finally:
            settled.cancel()
            self._questions.pop(name, None)

    def progressed(self, params: Mapping[str, Any]) -> None:
        """Progress belongs to the round that waits, not to the one that began."""
        self.request.progressed(params)

    def _named(self, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The question's name: the one that it brings, else by its place in the call, so that a call that is
        made anew asks under the same names."""
        meta = params.get("_meta")
        known = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
        name = known.get(INPUT_NAME)
        if isinstance(name, str):
            rest = {key: value for key, value in known.items() if key != INPUT_NAME}
            params = {key: value for key, value in params.items() if key != "_meta"}
            params = {**params, "_meta": rest} if rest else params
        if not isinstance(name, str) or name in self._questions:
            self._count += 1
            name = f"input-{self._count}"
        return name, params

    async def outcome(self, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any] | None:
        """The result of the call, or None where the client is asked first. Raises what the call raises."""
        ripe = asyncio.ensure_future(self._ripe.wait())
        try:
            await asyncio.wait((task, ripe), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Whoever asked is gone: nobody will answer.
            task.cancel()
            raise
        finally:
            ripe.cancel()
        return task.result() if task.done() else None

    def input_requests(self) -> dict[str, Any]:
        """What the client is asked, by name."""
        return {
            name: {"method": question.method, "params": dict(question.params)}
            for name, question in self._questions.items()
        }


class ParkedCalls:
    """Those of one process. A call ends at the latest with its server's timeout."""

    def __init__(self) -> None:
        self._waiting: dict[str, Parked] = {}

    def start(self, request: Request, work: Callable[[Parked], Awaitable[dict[str, Any]]]) -> Parked:
        """Begin a call."""
        parked = Parked(request)
        parked.task = asyncio.ensure_future(work(parked))
        self._waiting[parked.id] = parked
        parked.task.add_done_callback(lambda task: self._done(parked, task))
        return parked

    def _done(self, parked: Parked, task: asyncio.Task[dict[str, Any]]) -> None:
        if parked.request.over:
            # It ended while nobody waited; the next round, if there is one, reads how.
            asyncio.get_running_loop().call_later(60.0, self._waiting.pop, parked.id, None)
            if not task.cancelled():
                task.exception()
        else:
            self._waiting.pop(parked.id, None)

    def find(self, parked_id: object) -> Parked | None:
        """The call that waits here, if it does."""
        return self._waiting.get(parked_id) if isinstance(parked_id, str) else None

    async def close(self) -> None:
        """End all of them."""
        tasks = [parked.task for parked in self._waiting.values() if parked.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._waiting.clear()
