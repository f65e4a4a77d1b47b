"""Servers that ask in the middle of a call: a form or a page for the person, or an answer of the model.

Each question is an event that the page shows; the answer comes as an event, from whichever process the person
reached. Nobody there, or nobody who answers: the server hears that it was cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from toolyard.agents.chat.elicitation_request import (
    MAX_SAMPLING_REQUEST_CHARACTERS,
    SamplingRequest,
    parse_elicitation,
)
from toolyard.agents.chat.event_writer import EventWriter
from toolyard.agents.chat.storage import ChatStore
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.errors import ToolyardError
from toolyard.types.chat import ChatEvent, Kind, NewChatEvent
from toolyard.types.tool import JsonObject

__all__ = [
    "CANCEL_RESULT",
    "ActiveCall",
    "Declined",
    "SamplingHandler",
    "ServerQuestions",
    "question_answer_event",
]

log = logging.getLogger("toolyard.chat")

CANCEL_RESULT: JsonObject = {"action": "cancel"}
_ANSWER_POLL_SECONDS = 30.0
"""Seconds of one look for an answer."""

SamplingHandler: TypeAlias = Callable[[SamplingRequest], Awaitable[Mapping[str, Any]]]
"""Runs the chat's model on a request that the person allowed. Raises a ModelError."""


@dataclass(frozen=True, slots=True, eq=False)
class ActiveCall:
    """A call that is under way: where questions that come during it belong."""

    principal_id: str
    server_id: str | None
    call_id: str
    label: str
    event_writer: EventWriter
    sampling_handler: SamplingHandler | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    open_question_ids: set[str] = field(default_factory=set[str])
    """Questions that wait for an answer."""
    asked: list[str] = field(default_factory=list[str])
    """All questions of this call."""


_CURRENT_CALL: ContextVar[ActiveCall | None] = ContextVar("toolyard-flight", default=None)
"""The call that the running task is part of. What a server says between its answers comes in no such task."""


class ServerQuestions:
    """Puts the questions of servers to the people whose calls are under way."""

    def __init__(self, store: ChatStore, limits: ChatLimits) -> None:
        self._store = store
        self._limits = limits
        self._active_calls: list[ActiveCall] = []

    @contextlib.contextmanager
    def track_call(self, active_call: ActiveCall) -> Generator[None]:
        """Questions that come while this lasts may belong to this call."""
        token = _CURRENT_CALL.set(active_call)
        self._active_calls.append(active_call)
        try:
            yield
        finally:
            self._active_calls.remove(active_call)
            active_call.finished.set()
            _CURRENT_CALL.reset(token)

    async def elicit(
        self, principal_id: str, server_id: str, params: JsonObject, *, chat_id: str | None = None
    ) -> Mapping[str, Any]:
        """The result of ``elicitation/create``. ``chat`` is whose connection it came over, where it is one's
        own."""
        flight, call_id = self._find_active_call(principal_id, server_id, chat_id)
        asked = parse_elicitation(params)
        if flight is None or asked is None:
            return CANCEL_RESULT
        return await self._ask_within_limits(flight, call_id, asked)

    async def sample(
        self, principal_id: str, server_id: str, params: JsonObject, *, chat_id: str | None = None
    ) -> Mapping[str, Any]:
        """The result of ``sampling/createMessage``: what the model says, if the person allows that it is
        asked. It is given no tools. Raises Declined, or a ModelError."""
        flight, call_id = self._find_active_call(principal_id, server_id, chat_id)
        if flight is None or flight.sampling_handler is None:
            raise Declined("there is nobody here who could let a model answer")
        request = SamplingRequest.from_params(params)
        words = request.words
        if len(words) > MAX_SAMPLING_REQUEST_CHARACTERS:
            # Nobody shall allow what they were not shown.
            told = (
                f"{len(words):,} characters, more than a person is shown "
                f"({MAX_SAMPLING_REQUEST_CHARACTERS:,})"
            )
            raise Declined(f"the request has {told}")
        asked = {"kind": "sampling", "message": "wants an answer of the model", "request": words}
        answer = await self._ask_within_limits(flight, call_id, asked)
        if answer["action"] != "accept":
            raise Declined("the person did not let the model answer this")
        return await flight.sampling_handler(request)

    def _find_active_call(
        self, principal_id: str, server_id: str, chat_id: str | None
    ) -> tuple[ActiveCall | None, str | None]:
        """Whose question it is: that of the call it comes in, else that of the last call that this person has
        under way there. The call's id only where it can be no other's."""
        current = _CURRENT_CALL.get()
        if current is not None and current in self._active_calls and current.server_id in (None, server_id):
            return current, current.call_id
        found = [
            flight
            for flight in self._active_calls
            if (flight.principal_id, flight.server_id) == (principal_id, server_id)
            and chat_id in (None, flight.event_writer.chat_id)
        ]
        if not found:
            return None, None
        return found[-1], found[-1].call_id if len(found) == 1 else None

    async def _ask_within_limits(
        self, active_call: ActiveCall, call_id: str | None, question_body: JsonObject
    ) -> Mapping[str, Any]:
        """What the person answered; that it was cancelled where they did not in time, or the call is over."""
        rules = self._limits
        if (
            len(active_call.asked) >= rules.max_questions_per_call
            or len(active_call.open_question_ids) >= rules.max_open_questions
        ):
            log.warning("a question of %s is not asked: there are too many of them", active_call.label)
            return CANCEL_RESULT
        id = secrets.token_hex(8)
        active_call.asked.append(id)
        active_call.open_question_ids.add(id)
        try:
            return await self._ask_and_wait(active_call, call_id, question_body, id)
        finally:
            active_call.open_question_ids.discard(id)

    async def _ask_and_wait(
        self, active_call: ActiveCall, call_id: str | None, question_body: JsonObject, question_id: str
    ) -> Mapping[str, Any]:
        blank = {"schema": None, "url": None, "request": None}
        body = {**blank, "id": question_id, "call": call_id, "server": active_call.label, **question_body}
        try:
            written = await active_call.event_writer.append([NewChatEvent(Kind.QUESTION, body)])
        except ToolyardError as error:
            log.warning("a question of %s cannot be asked: %s", active_call.label, error.cause)
            return CANCEL_RESULT
        waiting = asyncio.get_running_loop().create_task(self._wait_for_answer(written[-1], question_id))
        over = asyncio.get_running_loop().create_task(active_call.finished.wait())
        try:
            await asyncio.wait(
                (waiting, over),
                timeout=self._limits.question_timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if waiting.done():
                return waiting.result()
        finally:
            for task in (waiting, over):
                task.cancel()
            await asyncio.wait((waiting, over))
        with contextlib.suppress(ToolyardError):
            await active_call.event_writer.append([question_answer_event(question_id, "cancel", None)])
        return CANCEL_RESULT

    async def _wait_for_answer(self, question: ChatEvent, question_id: str) -> Mapping[str, Any]:
        """Wait for the answer; whoever does not want to any more cancels."""
        after = question.seq
        try:
            while True:
                for event in await self._store.wait_for_events(question.chat_id, after, _ANSWER_POLL_SECONDS):
                    after = event.seq
                    if event.kind is Kind.QUESTION_ANSWER and event.body.get("id") == question_id:
                        return await self._read_answer(event)
        except ToolyardError as error:
            log.warning("the answer to a question cannot be read: %s", error.cause)
            return CANCEL_RESULT

    async def _read_answer(self, event: ChatEvent) -> Mapping[str, Any]:
        action = str(event.body.get("action"))
        if action != "accept":
            return {"action": action}
        kept = await self._store.kept(event.chat_id, event.seq) if event.has_kept else None
        return {"action": action} if not kept else {"action": action, "content": orjson.loads(kept)}


class Declined(ToolyardError):
    """Nobody allowed a server to let a model answer."""


def question_answer_event(question_id: str, action: str, content: JsonObject | None) -> NewChatEvent:
    """The answer to a question. Its content is kept aside: it is for the server, not for the page."""
    kept = orjson.dumps(dict(content)) if content is not None and action == "accept" else b""
    return NewChatEvent(Kind.QUESTION_ANSWER, {"id": question_id, "action": action}, kept=kept)
