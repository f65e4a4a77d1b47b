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

from toolyard.clients.callbacks import INPUT_NAME_META_KEY
from toolyard.gateway.client_request import ClientRequest

__all__ = ["SuspendedCall", "SuspendedCalls"]

_SETTLE_SECONDS = 0.03
"""Seconds after a question in which others that were asked at the same time are waited for."""


@dataclass(slots=True)
class _PendingQuestion:
    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[dict[str, Any]]


class SuspendedCall:
    """One call through all its rounds. ``request`` is the round that is being answered now."""

    def __init__(self, request: ClientRequest) -> None:
        self.id = secrets.token_urlsafe(12)
        self.request = request
        self.task: asyncio.Task[dict[str, Any]] | None = None
        self._early_answers: dict[str, dict[str, Any]] = {}
        self._questions: dict[str, _PendingQuestion] = {}
        self._input_required = asyncio.Event()
        self._unnamed_count = 0
        self.receive_round(request)

    def receive_round(self, request: ClientRequest) -> None:
        """Another round: its answers go to the questions of their names, or wait for those."""
        self.request = request
        self._input_required.clear()
        given = request.params.get("inputResponses")
        answers = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        for name, answer in answers.items():
            if not isinstance(answer, dict):
                continue
            question = self._questions.pop(name, None)
            if question is None:
                self._early_answers[name] = cast("dict[str, Any]", answer)
            elif not question.answer.done():
                question.answer.set_result(cast("dict[str, Any]", answer))
        if self._questions:
            # Something is still not answered; the client is asked again.
            self._input_required.set()

    async def ask_client(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The client's answer to a server's question, in whichever round it comes."""
        name, params = self._name_question(params)
        if (given := self._early_answers.pop(name, None)) is not None:
            return given
        loop = asyncio.get_running_loop()
        question = _PendingQuestion(method, params, loop.create_future())
        self._questions[name] = question
        settled = loop.call_later(_SETTLE_SECONDS, self._input_required.set)
        try:
            return await question.answer
        finally:
            settled.cancel()
            self._questions.pop(name, None)

    def send_progress(self, params: Mapping[str, Any]) -> None:
        """Progress belongs to the round that waits, not to the one that began."""
        self.request.send_progress(params)

    def _name_question(self, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """The question's name: the one that it brings, else by its place in the call, so that a call that is
        made anew asks under the same names."""
        meta = params.get("_meta")
        known = cast("dict[str, Any]", meta) if isinstance(meta, dict) else {}
        name = known.get(INPUT_NAME_META_KEY)
        if isinstance(name, str):
            rest = {key: value for key, value in known.items() if key != INPUT_NAME_META_KEY}
            params = {key: value for key, value in params.items() if key != "_meta"}
            params = {**params, "_meta": rest} if rest else params
        if not isinstance(name, str) or name in self._questions:
            self._unnamed_count += 1
            name = f"input-{self._unnamed_count}"
        return name, params

    async def outcome(self, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any] | None:
        """The result of the call, or None where the client is asked first. Raises what the call raises."""
        ripe = asyncio.ensure_future(self._input_required.wait())
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


class SuspendedCalls:
    """Those of one process. A call ends at the latest with its server's timeout."""

    def __init__(self) -> None:
        self._calls: dict[str, SuspendedCall] = {}

    def start(
        self, request: ClientRequest, work: Callable[[SuspendedCall], Awaitable[dict[str, Any]]]
    ) -> SuspendedCall:
        """Begin a call."""
        parked = SuspendedCall(request)
        parked.task = asyncio.ensure_future(work(parked))
        self._calls[parked.id] = parked
        parked.task.add_done_callback(lambda task: self._on_call_done(parked, task))
        return parked

    def _on_call_done(self, parked: SuspendedCall, task: asyncio.Task[dict[str, Any]]) -> None:
        if parked.request.is_finished:
            # It ended while nobody waited; the next round, if there is one, reads how.
            asyncio.get_running_loop().call_later(60.0, self._calls.pop, parked.id, None)
            if not task.cancelled():
                task.exception()
        else:
            self._calls.pop(parked.id, None)

    def find(self, call_id: object) -> SuspendedCall | None:
        """The call that waits here, if it does."""
        return self._calls.get(call_id) if isinstance(call_id, str) else None

    async def close(self) -> None:
        """End all of them."""
        tasks = [parked.task for parked in self._calls.values() if parked.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._calls.clear()
