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

from toolyard.agents.chat.chat_settings import ChatRules
from toolyard.agents.chat.elicitation_request import LONGEST_REQUEST, Sampling, elicitation
from toolyard.agents.chat.event_writer import Scribe
from toolyard.agents.chat.storage import ChatStore
from toolyard.errors import ToolyardError
from toolyard.types.chat import Event, Kind, NewEvent
from toolyard.types.tool import JsonObject

__all__ = ["CANCELLED", "Declined", "Flight", "Questions", "Sampler", "answered_event"]

log = logging.getLogger("toolyard.chat")

CANCELLED: JsonObject = {"action": "cancel"}
_PATIENCE = 30.0
"""Seconds of one look for an answer."""

Sampler: TypeAlias = Callable[[Sampling], Awaitable[Mapping[str, Any]]]
"""Runs the chat's model on a request that the person allowed. Raises a ModelError."""


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A call that is under way: where questions that come during it belong."""

    principal_id: str
    server_id: str | None
    call_id: str
    label: str
    scribe: Scribe
    sample: Sampler | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    open: set[str] = field(default_factory=set[str])
    """Questions that wait for an answer."""
    asked: list[str] = field(default_factory=list[str])
    """All questions of this call."""


_CURRENT: ContextVar[Flight | None] = ContextVar("toolyard-flight", default=None)
"""The call that the running task is part of. What a server says between its answers comes in no such task."""


class Questions:
    """Puts the questions of servers to the people whose calls are under way."""

    def __init__(self, store: ChatStore, rules: ChatRules) -> None:
        self._store = store
        self._rules = rules
        self._flights: list[Flight] = []

    @contextlib.contextmanager
    def during(self, flight: Flight) -> Generator[None]:
        """Questions that come while this lasts may belong to this call."""
        token = _CURRENT.set(flight)
        self._flights.append(flight)
        try:
            yield
        finally:
            self._flights.remove(flight)
            flight.over.set()
            _CURRENT.reset(token)

    async def elicit(
        self, principal_id: str, server_id: str, params: JsonObject, *, chat: str | None = None
    ) -> Mapping[str, Any]:
        """The result of ``elicitation/create``. ``chat`` is whose connection it came over, where it is one's
        own."""
        flight, call_id = self._flight(principal_id, server_id, chat)
        asked = elicitation(params)
        if flight is None or asked is None:
            return CANCELLED
        return await self._ask(flight, call_id, asked)

    async def sample(
        self, principal_id: str, server_id: str, params: JsonObject, *, chat: str | None = None
    ) -> Mapping[str, Any]:
        """The result of ``sampling/createMessage``: what the model says, if the person allows that it is
        asked. It is given no tools. Raises Declined, or a ModelError."""
        flight, call_id = self._flight(principal_id, server_id, chat)
        if flight is None or flight.sample is None:
            raise Declined("there is nobody here who could let a model answer")
        request = Sampling.of(params)
        words = request.words
        if len(words) > LONGEST_REQUEST:
            # Nobody shall allow what they were not shown.
            told = f"{len(words):,} characters, more than a person is shown ({LONGEST_REQUEST:,})"
            raise Declined(f"the request has {told}")
        asked = {"kind": "sampling", "message": "wants an answer of the model", "request": words}
        answer = await self._ask(flight, call_id, asked)
        if answer["action"] != "accept":
            raise Declined("the person did not let the model answer this")
        return await flight.sample(request)

    def _flight(
        self, principal_id: str, server_id: str, chat: str | None
    ) -> tuple[Flight | None, str | None]:
        """Whose question it is: that of the call it comes in, else that of the last call that this person has
        under way there. The call's id only where it can be no other's."""
        current = _CURRENT.get()
        if current is not None and current in self._flights and current.server_id in (None, server_id):
            return current, current.call_id
        found = [
            flight
            for flight in self._flights
            if (flight.principal_id, flight.server_id) == (principal_id, server_id)
            and chat in (None, flight.scribe.chat_id)
        ]
        if not found:
            return None, None
        return found[-1], found[-1].call_id if len(found) == 1 else None

    async def _ask(self, flight: Flight, call_id: str | None, asked: JsonObject) -> Mapping[str, Any]:
        """What the person answered; that it was cancelled where they did not in time, or the call is over."""
        rules = self._rules
        if len(flight.asked) >= rules.questions_per_call or len(flight.open) >= rules.open_questions:
            log.warning("a question of %s is not asked: there are too many of them", flight.label)
            return CANCELLED
        id = secrets.token_hex(8)
        flight.asked.append(id)
        flight.open.add(id)
        try:
            return await self._put(flight, call_id, asked, id)
        finally:
            flight.open.discard(id)

    async def _put(
        self, flight: Flight, call_id: str | None, asked: JsonObject, id: str
    ) -> Mapping[str, Any]:
        blank = {"schema": None, "url": None, "request": None}
        body = {**blank, "id": id, "call": call_id, "server": flight.label, **asked}
        try:
            written = await flight.scribe.append([NewEvent(Kind.QUESTION, body)])
        except ToolyardError as error:
            log.warning("a question of %s cannot be asked: %s", flight.label, error.cause)
            return CANCELLED
        waiting = asyncio.get_running_loop().create_task(self._answer(written[-1], id))
        over = asyncio.get_running_loop().create_task(flight.over.wait())
        try:
            await asyncio.wait(
                (waiting, over),
                timeout=self._rules.question_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if waiting.done():
                return waiting.result()
        finally:
            for task in (waiting, over):
                task.cancel()
            await asyncio.wait((waiting, over))
        with contextlib.suppress(ToolyardError):
            await flight.scribe.append([answered_event(id, "cancel", None)])
        return CANCELLED

    async def _answer(self, question: Event, id: str) -> Mapping[str, Any]:
        """Wait for the answer; whoever does not want to any more cancels."""
        after = question.seq
        try:
            while True:
                for event in await self._store.wait(question.chat_id, after, _PATIENCE):
                    after = event.seq
                    if event.kind is Kind.ANSWERED and event.body.get("id") == id:
                        return await self._read(event)
        except ToolyardError as error:
            log.warning("the answer to a question cannot be read: %s", error.cause)
            return CANCELLED

    async def _read(self, event: Event) -> Mapping[str, Any]:
        action = str(event.body.get("action"))
        if action != "accept":
            return {"action": action}
        kept = await self._store.kept(event.chat_id, event.seq) if event.has_kept else None
        return {"action": action} if not kept else {"action": action, "content": orjson.loads(kept)}


class Declined(ToolyardError):
    """Nobody allowed a server to let a model answer."""


def answered_event(id: str, action: str, content: JsonObject | None) -> NewEvent:
    """The answer to a question. Its content is kept aside: it is for the server, not for the page."""
    kept = orjson.dumps(dict(content)) if content is not None and action == "accept" else b""
    return NewEvent(Kind.ANSWERED, {"id": id, "action": action}, kept=kept)
