"""Follows a turn to its end: prints its events, and asks the person where needed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatError
from toolyard.cli.chat.approval_prompts import (
    ApprovalReply,
    InputEnded,
    QuestionReply,
    ask_approval,
    ask_question,
)
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.screen import EventBody
from toolyard.cli.output.messages import show_note
from toolyard.types.chat import Chat, ChatEvent, Kind, TurnOutcome

__all__ = ["EventDisplay", "TurnFollower", "TurnResult", "UserLeft"]

_EVENT_POLL_SECONDS = 30.0


class UserLeft(Exception):
    """Raised when the person leaves before the turn has ended. ``by_interrupt``: with Ctrl-C."""

    def __init__(self, *, by_interrupt: bool) -> None:
        super().__init__()
        self.by_interrupt = by_interrupt


class EventDisplay(Protocol):
    """Receives the events of a turn."""

    def show(self, event: ChatEvent) -> None: ...

    def end_line(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The outcome of a turn. ``refused``: something was refused because nobody could be asked."""

    outcome: TurnOutcome
    has_refusals: bool


class TurnFollower:
    """Follows one turn of a chat. ``can_ask``: a person can answer questions."""

    def __init__(
        self, chats: ChatService, chat: Chat, display: EventDisplay, interrupts: Interrupts, *, can_ask: bool
    ) -> None:
        self._chats = chats
        self._chat = chat
        self._display = display
        self._interrupts = interrupts
        self._can_ask = can_ask
        self._calls: dict[str, EventBody] = {}
        self._open_requests: deque[ChatEvent] = deque()
        """Open questions, the oldest first."""
        self._active_prompt: tuple[ChatEvent, asyncio.Task[ApprovalReply | QuestionReply]] | None = None
        self._deferred_events: list[ChatEvent] = []
        """Events that arrived during a question; they are printed after the answer."""
        self._is_stopping = False
        self._has_refusals = False
        self._outcome: TurnOutcome | None = None

    def catch_up(self, events: Sequence[ChatEvent]) -> None:
        """Process past events that are on the screen already: known calls and open questions."""
        for event in events:
            self._track_event(event)

    async def follow(self, after: int) -> TurnResult:
        """Print the events after a sequence number until the turn has ended. Raises UserLeft."""
        pressed = asyncio.ensure_future(self._interrupts.wait())
        coming: asyncio.Task[Sequence[ChatEvent]] | None = None
        try:
            while self._outcome is None:
                await self._ask_next()
                coming = coming or asyncio.ensure_future(self._wait_for_events(after))
                tasks: set[asyncio.Task[Any]] = {pressed, coming}
                if self._active_prompt is not None:
                    tasks.add(self._active_prompt[1])
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if pressed.done():
                    await self._handle_interrupt()
                    pressed = asyncio.ensure_future(self._interrupts.wait())
                if self._active_prompt is not None and self._active_prompt[1].done():
                    await self._finish_prompt()
                if coming.done():
                    events, coming = coming.result(), None
                    after = events[-1].seq if events else after
                    for event in events:
                        self._handle_event(event)
            return TurnResult(self._outcome, self._has_refusals)
        finally:
            self._cancel_prompt()
            pressed.cancel()
            if coming is not None:
                coming.cancel()

    async def _wait_for_events(self, after: int) -> Sequence[ChatEvent]:
        return await self._chats.wait_for_events(self._chat.owner, self._chat.id, after, _EVENT_POLL_SECONDS)

    # Events.

    def _handle_event(self, event: ChatEvent) -> None:
        if self._active_prompt is not None and _settles_request(event, self._active_prompt[0]):
            self._cancel_prompt()
            show_note(
                "it was already answered elsewhere" if event.kind is not Kind.END else "the turn is over"
            )
            self._show_deferred_events()
        if self._active_prompt is not None:
            self._deferred_events.append(event)
        else:
            self._show_event(event)

    def _show_event(self, event: ChatEvent) -> None:
        self._display.show(event)
        self._track_event(event)

    def _track_event(self, event: ChatEvent) -> None:
        match event.kind:
            case Kind.CALL:
                self._calls[str(event.body.get("id"))] = event.body
            case Kind.APPROVAL_REQUEST | Kind.QUESTION:
                self._open_requests.append(event)
            case Kind.APPROVAL_ANSWER | Kind.QUESTION_ANSWER | Kind.RESULT | Kind.END:
                self._open_requests = deque(
                    one for one in self._open_requests if not _settles_request(event, one)
                )
                if event.kind is Kind.END:
                    self._outcome = TurnOutcome(str(event.body.get("why")))
            case _:
                pass

    def _show_deferred_events(self) -> None:
        held, self._deferred_events = self._deferred_events, []
        for event in held:
            self._show_event(event)

    # Questions.

    async def _ask_next(self) -> None:
        while self._active_prompt is None and self._open_requests:
            event = self._open_requests.popleft()
            if self._can_ask:
                self._display.end_line()
                self._active_prompt = (event, asyncio.ensure_future(self._ask_user(event)))
            else:
                await self._refuse_request(event)

    async def _ask_user(self, event: ChatEvent) -> ApprovalReply | QuestionReply:
        if event.kind is Kind.APPROVAL_REQUEST:
            call = self._calls.get(str(event.body.get("id")), {})
            return await ask_approval(call, str(event.body.get("reason") or ""))
        return await ask_question(event.body)

    async def _refuse_request(self, event: ChatEvent) -> None:
        self._has_refusals = True
        self._display.end_line()
        if event.kind is Kind.APPROVAL_REQUEST:
            name = self._calls.get(str(event.body.get("id")), {}).get("name")
            show_note(
                f"{name} was refused: it needs an approval, and nobody is here to give it",
                "run it in a terminal, or set write_tools to allow",
            )
            await self._send_answer(event, ApprovalReply(False))
        else:
            show_note(
                f"{event.body.get('server')} asked a question, and nobody is here to answer it",
                "run it in a terminal",
            )
            await self._send_answer(event, QuestionReply("decline"))

    async def _finish_prompt(self) -> None:
        assert self._active_prompt is not None
        (event, task), self._active_prompt = self._active_prompt, None
        try:
            answer = task.result()
        except InputEnded:
            if event.kind is Kind.APPROVAL_REQUEST:
                # The question can be answered later, here or in the web app.
                raise UserLeft(by_interrupt=False) from None
            answer = QuestionReply("cancel")
        await self._send_answer(event, answer)
        self._show_deferred_events()

    async def _send_answer(self, event: ChatEvent, answer: ApprovalReply | QuestionReply) -> None:
        owner = self._chat.owner
        try:
            if isinstance(answer, ApprovalReply):
                approval = str(event.body.get("approval"))
                await self._chats.answer_approval(
                    owner, approval, yes=answer.approved, remember=answer.remember
                )
            else:
                question = str(event.body.get("id"))
                await self._chats.answer_question(
                    owner, self._chat.id, question, answer.action, answer.content
                )
        except ChatError as error:
            show_note(error.cause, error.hint)

    def _cancel_prompt(self) -> None:
        if self._active_prompt is not None:
            self._active_prompt[1].cancel()
            self._active_prompt = None

    # Stopping.

    async def _handle_interrupt(self) -> None:
        self._cancel_prompt()
        self._display.end_line()
        if self._is_stopping:
            raise UserLeft(by_interrupt=True)
        self._is_stopping = True
        self._open_requests.clear()
        await self._chats.stop(self._chat.owner, self._chat.id)
        self._show_deferred_events()


def _settles_request(event: ChatEvent, request: ChatEvent) -> bool:
    """Return whether an event settles an earlier question."""
    if event.kind is Kind.END:
        return True
    if request.kind is Kind.APPROVAL_REQUEST:
        by_answer = event.kind is Kind.APPROVAL_ANSWER and event.body.get("approval") == request.body.get(
            "approval"
        )
        return by_answer or (event.kind is Kind.RESULT and event.body.get("id") == request.body.get("id"))
    return event.kind is Kind.QUESTION_ANSWER and event.body.get("id") == request.body.get("id")
