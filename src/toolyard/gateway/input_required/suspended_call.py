"""Calls of clients without sessions to servers with sessions, suspended until the client answers a question.

A server with a session asks and waits for the answer. A client without a session gets ``input_required``, and
sends a new request with its answers and the state. Between these requests the call continues here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from toolyard.clients.callbacks import INPUT_NAME_META_KEY
from toolyard.concurrency.tasks import cancel_tasks
from toolyard.gateway.incoming_request import ClientRequest
from toolyard.types.json_values import object_or_empty

__all__ = ["CALL_ID_KEY", "MultiRoundCall", "SuspendedCalls"]

CALL_ID_KEY = "parked"
"""Key of the call's id in the state that clients carry, and in messages between replicas. It keeps its value,
since both may cross an upgrade."""
_SETTLE_SECONDS = 0.03
"""Time after a question in which further questions are collected into the same round."""


@dataclass(slots=True)
class _PendingQuestion:
    method: str
    params: Mapping[str, Any]
    answer: asyncio.Future[dict[str, Any]]


class MultiRoundCall:
    """One call through all its rounds. ``request`` is the current round."""

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
        """Start another round: its answers go to the questions of the same names, or are kept for them."""
        self.request = request
        self._input_required.clear()
        given = request.params.get("inputResponses")
        answers = object_or_empty(given)
        for name, answer in answers.items():
            if not isinstance(answer, dict):
                continue
            question = self._questions.pop(name, None)
            if question is None:
                # The server asks one question after another, while a client may send all answers with the
                # first round of a repeated call. An answer waits for its question.
                self._early_answers[name] = cast("dict[str, Any]", answer)
            elif not question.answer.done():
                question.answer.set_result(cast("dict[str, Any]", answer))
        if self._questions:
            # A question is still open; the client is asked again.
            self._input_required.set()

    async def ask_client(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's answer to a question from the server, in whichever round it arrives."""
        name, params = self._name_question(params)
        if (given := self._early_answers.pop(name, None)) is not None:
            return given
        loop = asyncio.get_running_loop()
        question = _PendingQuestion(method, params, loop.create_future())
        self._questions[name] = question
        # Each round costs the client a request and perhaps a person's attention. A short delay collects
        # questions that a server asks in parallel (decision 0040).
        settled = loop.call_later(_SETTLE_SECONDS, self._input_required.set)
        try:
            return await question.answer
        finally:
            settled.cancel()
            self._questions.pop(name, None)

    def send_progress(self, params: Mapping[str, Any]) -> None:
        """Send progress with the current round, not with the first one."""
        self.request.send_progress(params)

    def _name_question(self, params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the question's name: its own, or one made from its position in the call.

        A repeated call therefore asks under the same names.
        """
        known = object_or_empty(params.get("_meta"))
        name = known.get(INPUT_NAME_META_KEY)
        if isinstance(name, str):
            rest = {key: value for key, value in known.items() if key != INPUT_NAME_META_KEY}
            params = {key: value for key, value in params.items() if key != "_meta"}
            params = {**params, "_meta": rest} if rest else params
        if not isinstance(name, str) or name in self._questions:
            self._unnamed_count += 1
            name = f"input-{self._unnamed_count}"
        return name, params

    async def wait_for_outcome(self, task: asyncio.Task[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the result of the call, or None if the client has to answer first. Raises what the call
        raises."""
        ripe = asyncio.ensure_future(self._input_required.wait())
        try:
            await asyncio.wait((task, ripe), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The client has disconnected, so no answer will come.
            task.cancel()
            raise
        finally:
            ripe.cancel()
        # The result goes first: questions that are open when the call is done need no answer.
        return task.result() if task.done() else None

    def close_questions(self) -> None:
        """Answer the open questions of a call that has ended: the server, which other clients use too, must
        not wait for answers that nobody will give."""
        for question in list(self._questions.values()):
            if question.answer.done():
                continue
            if question.method == "elicitation/create":
                question.answer.set_result({"action": "cancel"})
            else:
                question.answer.cancel()

    def input_requests(self) -> dict[str, Any]:
        """Return the open questions by name."""
        return {
            name: {"method": question.method, "params": dict(question.params)}
            for name, question in self._questions.items()
        }


class SuspendedCalls:
    """The suspended calls of one process. A call ends at the latest with its server's timeout."""

    def __init__(self) -> None:
        self._calls: dict[str, MultiRoundCall] = {}

    def start(
        self, request: ClientRequest, work: Callable[[MultiRoundCall], Awaitable[dict[str, Any]]]
    ) -> MultiRoundCall:
        """Start a call."""
        call = MultiRoundCall(request)
        call.task = asyncio.ensure_future(work(call))
        self._calls[call.id] = call
        call.task.add_done_callback(lambda task: self._on_call_done(call, task))
        return call

    def _on_call_done(self, call: MultiRoundCall, task: asyncio.Task[dict[str, Any]]) -> None:
        call.close_questions()
        if call.request.is_finished:
            # The call ended between two rounds. Its outcome is kept for the next round, if one comes.
            asyncio.get_running_loop().call_later(60.0, self._calls.pop, call.id, None)
            if not task.cancelled():
                task.exception()
        else:
            self._calls.pop(call.id, None)

    def find(self, call_id: object) -> MultiRoundCall | None:
        """Return the call that is suspended in this process, if there is one."""
        return self._calls.get(call_id) if isinstance(call_id, str) else None

    async def close(self) -> None:
        """End all calls."""
        await cancel_tasks(call.task for call in self._calls.values() if call.task is not None)
        self._calls.clear()
