"""Requests that servers send during a call: a form or a link for the user, or a sampling request for the
model.

Each question is stored as an event that the interface displays; the answer arrives as an event from any
process. If no user is available, or none answers in time, the server receives ``cancel``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from toolyard.agents.chat.server_request_parsing import (
    MAX_SAMPLING_REQUEST_CHARACTERS,
    SamplingRequest,
    is_private_page,
    parse_elicitation,
)
from toolyard.agents.chat.tool_set import ToolSet
from toolyard.agents.chat.turn_limits import ChatLimits
from toolyard.agents.chat.turn_log import TurnLog
from toolyard.errors import ToolyardError
from toolyard.types.chat import CallRequest, ChatEvent, NewChatEvent, Question, QuestionAnswer
from toolyard.types.tool import JsonObject

if TYPE_CHECKING:
    from toolyard.store.repositories.chats import SqlChatStore

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
"""Duration of one wait for the answer event."""

SamplingHandler: TypeAlias = Callable[[SamplingRequest], Awaitable[Mapping[str, Any]]]
"""Runs the chat's model on a request that the user allowed. Raises a ModelError."""


@dataclass(frozen=True, eq=False)
class ActiveCall:
    """A running call, to which questions that arrive meanwhile are assigned."""

    request: CallRequest
    tool_set: ToolSet
    log: TurnLog
    find_sampling_handler: Callable[[], SamplingHandler | None]
    """Returns None if the owner of the chat has no model. Looked up when a server asks, which few do."""
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    open_question_ids: set[str] = field(default_factory=set[str])
    """Questions without an answer yet."""
    question_ids: list[str] = field(default_factory=list[str])
    """Ids of all questions of this call."""

    @cached_property
    def server_id(self) -> str | None:
        """The server that is called. Most calls end without a question, for which alone it is needed."""
        return self.tool_set.find_called_server(self.request)

    @property
    def server_label(self) -> str:
        """Display name of the server."""
        return self.request.server if self.server_id is None else self.tool_set.server_label(self.server_id)


_CURRENT_CALL: ContextVar[ActiveCall | None] = ContextVar("toolyard-flight", default=None)
"""The call that the current task belongs to.

Requests on a server's notification stream arrive outside of it.
"""


class ServerQuestions:
    """Sends servers' questions to the users whose calls are running."""

    def __init__(self, store: SqlChatStore, limits: ChatLimits) -> None:
        self._store = store
        self._limits = limits
        self._active_calls: list[ActiveCall] = []

    @contextlib.contextmanager
    def track_call(self, active_call: ActiveCall) -> Generator[None]:
        """Register a call as running for the duration of the context."""
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
        """Return the result of ``elicitation/create``.

        ``chat_id`` is the chat that owns the connection on which the request arrived, if the connection is
        dedicated to one.
        """
        active_call, call_id = self._find_active_call(principal_id, server_id, chat_id)
        question = parse_elicitation(params)
        if active_call is None or question is None:
            return CANCEL_RESULT
        server = active_call.tool_set.find_server(server_id)
        if question.url is not None and is_private_page(server, question.url):
            log.warning(
                "%s asked to open a page at a private address, which privateAddresses does not allow",
                active_call.server_label,
            )
            return CANCEL_RESULT
        return await self._ask_within_limits(active_call, call_id, question)

    async def sample(
        self, principal_id: str, server_id: str, params: JsonObject, *, chat_id: str | None = None
    ) -> Mapping[str, Any]:
        """Return the result of ``sampling/createMessage``: the model's answer, if the user allows the
        request.

        The model gets no tools. Raises Declined, or a ModelError.
        """
        active_call, call_id = self._find_active_call(principal_id, server_id, chat_id)
        sampling_handler = None if active_call is None else active_call.find_sampling_handler()
        if active_call is None or sampling_handler is None:
            raise Declined("no user is available to allow a model request")
        if SamplingRequest.is_too_long(params):
            raise Declined("the request is larger than 10 MB")
        request = SamplingRequest.from_params(params)
        words = request.display_text
        if len(words) > MAX_SAMPLING_REQUEST_CHARACTERS:
            # A user must not approve a request that cannot be displayed in full.
            raise Declined(
                f"the request has {len(words):,} characters; at most "
                f"{MAX_SAMPLING_REQUEST_CHARACTERS:,} can be shown for approval"
            )
        question = Question(kind="sampling", message="requests an answer from the model", request=words)
        answer = await self._ask_within_limits(active_call, call_id, question)
        if answer["action"] != "accept":
            raise Declined("the user did not allow this request to the model")
        return await sampling_handler(request)

    def _find_active_call(
        self, principal_id: str, server_id: str, chat_id: str | None
    ) -> tuple[ActiveCall | None, str | None]:
        """Return the call that a request belongs to, and its id if it can only be that one.

        That is the call of the current task; otherwise the user's latest running call to this server.
        """
        # Over HTTP a server asks in the stream of the call, which is read by the task of that call. Over
        # stdio all messages arrive in one place, and the server does not say which call its question belongs
        # to.
        current = _CURRENT_CALL.get()
        if current is not None and current in self._active_calls and current.server_id in (None, server_id):
            return current, current.request.id
        candidates = [
            active_call
            for active_call in self._active_calls
            if (active_call.tool_set.caller.principal.id, active_call.server_id) == (principal_id, server_id)
            and chat_id in (None, active_call.log.chat_id)
        ]
        if not candidates:
            return None, None
        return candidates[-1], candidates[-1].request.id if len(candidates) == 1 else None

    async def _ask_within_limits(
        self, active_call: ActiveCall, call_id: str | None, question: Question
    ) -> Mapping[str, Any]:
        """Return the user's answer; ``cancel`` after the timeout, at a limit, or when the call ends."""
        limits = self._limits
        if (
            len(active_call.question_ids) >= limits.max_questions_per_call
            or len(active_call.open_question_ids) >= limits.max_open_questions
        ):
            log.warning(
                "a question from %s was cancelled: too many questions in one call",
                active_call.server_label,
            )
            return CANCEL_RESULT
        id = secrets.token_hex(8)
        active_call.question_ids.append(id)
        active_call.open_question_ids.add(id)
        try:
            return await self._ask_and_wait(active_call, call_id, question, id)
        finally:
            active_call.open_question_ids.discard(id)

    async def _ask_and_wait(
        self, active_call: ActiveCall, call_id: str | None, question: Question, question_id: str
    ) -> Mapping[str, Any]:
        question = replace(question, id=question_id, call=call_id, server=active_call.server_label)
        try:
            stored_events = await active_call.log.append([NewChatEvent.from_data(question)])
        except ToolyardError as error:
            log.warning("a question from %s cannot be stored: %s", active_call.server_label, error.cause)
            return CANCEL_RESULT
        # Wait for the first of: the answer, the end of the call, the timeout. An answer that arrives together
        # with the end of the call still counts.
        answer_task = asyncio.get_running_loop().create_task(
            self._wait_for_answer(stored_events[-1], question_id)
        )
        finished_task = asyncio.get_running_loop().create_task(active_call.finished.wait())
        try:
            await asyncio.wait(
                (answer_task, finished_task),
                timeout=self._limits.question_timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answer_task.done():
                return answer_task.result()
        finally:
            for task in (answer_task, finished_task):
                task.cancel()
            await asyncio.wait((answer_task, finished_task))
        with contextlib.suppress(ToolyardError):
            await active_call.log.append([question_answer_event(question_id, "cancel", None)])
        return CANCEL_RESULT

    async def _wait_for_answer(self, question: ChatEvent, question_id: str) -> Mapping[str, Any]:
        """Wait until the question is answered. The caller cancels this task to give up."""
        after = question.seq
        try:
            while True:
                for event in await self._store.wait_for_events(question.chat_id, after, _ANSWER_POLL_SECONDS):
                    after = event.seq
                    match event.data:
                        case QuestionAnswer(id=id, action=action) if id == question_id:
                            return await self._read_answer(event, action)
                        case _:
                            pass
        except ToolyardError as error:
            log.warning("waiting for the answer to a question failed: %s", error.cause)
            return CANCEL_RESULT

    async def _read_answer(self, event: ChatEvent, action: str) -> Mapping[str, Any]:
        if action != "accept":
            return {"action": action}
        payload = await self._store.get_payload(event.chat_id, event.seq) if event.has_payload else None
        return {"action": action} if not payload else {"action": action, "content": orjson.loads(payload)}


class Declined(ToolyardError):
    """Raised when the user did not allow a sampling request."""


def question_answer_event(question_id: str, action: str, content: JsonObject | None) -> NewChatEvent:
    """Return the event of an answer.

    The content is stored beside it: it is meant for the server, not for display.
    """
    payload = orjson.dumps(dict(content)) if content is not None and action == "accept" else b""
    return NewChatEvent.from_data(QuestionAnswer(question_id, action), payload=payload)
