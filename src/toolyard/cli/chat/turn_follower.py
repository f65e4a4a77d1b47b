"""Follows a turn to its end: prints its events, asks the person where needed, and stops it at Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.errors import ChatError
from toolyard.agents.chat.turn_snapshot import CallSnapshot, QuestionSnapshot, TurnSnapshot
from toolyard.cli.chat.approval_prompts import (
    ApprovalReply,
    InputEnded,
    QuestionReply,
    ask_approval,
    ask_question,
)
from toolyard.cli.output.console import show_note
from toolyard.types.chat import (
    ApprovalAnswer,
    CallResult,
    Chat,
    ChatEvent,
    EventData,
    QuestionAnswer,
    TurnEnd,
    UnknownEvent,
)

__all__ = ["EventDisplay", "Interrupts", "TurnFollower", "TurnResult", "UserExited"]

_EVENT_POLL_SECONDS = 30.0

OpenRequest: TypeAlias = CallSnapshot | QuestionSnapshot
"""A call that needs an approval, or a question from a server."""


class UserExited(Exception):
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
    """The outcome of a turn. ``has_refusals``: something was refused because nobody could be asked."""

    outcome: str
    """A TurnOutcome."""
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
        self._turn = TurnSnapshot()
        """The turn as it was printed."""
        self._asked_keys: set[str] = set()
        """Keys of requests that were asked or refused. A call's key stands for its approval."""
        self._active_prompt: tuple[OpenRequest, asyncio.Task[ApprovalReply | QuestionReply]] | None = None
        self._deferred_events: list[ChatEvent] = []
        """Events that arrived during a question; they are printed after the answer."""
        self._is_stopping = False
        self._has_refusals = False

    def catch_up(self, events: Sequence[ChatEvent]) -> None:
        """Process past events of the turn that are on the screen already."""
        self._turn = self._turn.apply(events)

    async def follow(self, after: int) -> TurnResult:
        """Print the events after a sequence number until the turn has ended. Raises UserExited."""
        pressed = asyncio.ensure_future(self._interrupts.wait())
        coming: asyncio.Task[Sequence[ChatEvent]] | None = None
        try:
            while self._turn.end is None:
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
            return TurnResult(self._turn.end.why, self._has_refusals)
        finally:
            self._cancel_prompt()
            pressed.cancel()
            if coming is not None:
                coming.cancel()

    async def _wait_for_events(self, after: int) -> Sequence[ChatEvent]:
        return await self._chats.wait_for_events(self._chat.owner, self._chat.id, after, _EVENT_POLL_SECONDS)

    # Events.

    def _handle_event(self, event: ChatEvent) -> None:
        if self._active_prompt is not None and _answers_request(event.data, self._active_prompt[0]):
            self._cancel_prompt()
            show_note(
                "the turn is over" if isinstance(event.data, TurnEnd) else "it was already answered elsewhere"
            )
            self._show_deferred_events()
        if self._active_prompt is not None:
            self._deferred_events.append(event)
        else:
            self._show_event(event)

    def _show_event(self, event: ChatEvent) -> None:
        self._display.show(event)
        self._turn = self._turn.apply([event])

    def _show_deferred_events(self) -> None:
        held, self._deferred_events = self._deferred_events, []
        for event in held:
            self._show_event(event)

    # Questions.

    async def _ask_next(self) -> None:
        if self._active_prompt is not None or self._is_stopping:
            return
        for request in self._turn.open_requests:
            if request.key in self._asked_keys:
                continue
            self._asked_keys.add(request.key)
            self._display.end_line()
            if self._can_ask:
                self._active_prompt = (request, asyncio.ensure_future(_ask_user(request)))
                return
            await self._refuse_request(request)

    async def _refuse_request(self, request: OpenRequest) -> None:
        self._has_refusals = True
        if isinstance(request, CallSnapshot):
            show_note(
                f"{request.request.name} was refused: it needs an approval, and nobody is here to give it",
                "run the command in a terminal, or set write_tools to 'allow'",
            )
            await self._send_answer(request, ApprovalReply(False, unattended=True))
        else:
            show_note(
                f"{request.question.server} asked a question, and nobody is here to answer it",
                "run the command in a terminal",
            )
            await self._send_answer(request, QuestionReply("decline"))

    async def _finish_prompt(self) -> None:
        assert self._active_prompt is not None
        (request, task), self._active_prompt = self._active_prompt, None
        try:
            answer = task.result()
        except InputEnded:
            if isinstance(request, CallSnapshot):
                # The question can be answered later, here or in the web app.
                raise UserExited(by_interrupt=False) from None
            answer = QuestionReply("cancel")
        await self._send_answer(request, answer)
        self._show_deferred_events()

    async def _send_answer(self, request: OpenRequest, answer: ApprovalReply | QuestionReply) -> None:
        owner = self._chat.owner
        try:
            if isinstance(request, CallSnapshot) and isinstance(answer, ApprovalReply):
                assert request.approval is not None
                await self._chats.answer_approval(
                    owner,
                    request.approval.approval,
                    yes=answer.approved,
                    remember=answer.remember,
                    unattended=answer.unattended,
                )
            elif isinstance(request, QuestionSnapshot) and isinstance(answer, QuestionReply):
                await self._chats.answer_question(
                    owner, self._chat.id, request.question.id, answer.action, answer.content
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
            raise UserExited(by_interrupt=True)
        self._is_stopping = True
        await self._chats.stop_turn(self._chat.owner, self._chat.id)
        self._show_deferred_events()


async def _ask_user(request: OpenRequest) -> ApprovalReply | QuestionReply:
    if isinstance(request, QuestionSnapshot):
        return await ask_question(request.question)
    assert request.approval is not None
    return await ask_approval(request.request, request.approval.reason)


def _answers_request(data: EventData | UnknownEvent, request: OpenRequest) -> bool:
    """Return whether an event settles an earlier question."""
    match data, request:
        case TurnEnd(), _:
            return True
        case ApprovalAnswer(), CallSnapshot():
            return request.approval is not None and data.approval == request.approval.approval
        case CallResult(), CallSnapshot():
            return data.id == request.request.id
        case QuestionAnswer(), QuestionSnapshot():
            return data.id == request.question.id
        case _:
            return False


_UNSUPPORTED_SIGNAL_ERRORS = (NotImplementedError, RuntimeError, ValueError)
"""Raised on other platforms, and outside the main thread."""


class Interrupts:
    """While active, Ctrl-C does not end the program, if signal handlers are available."""

    def __init__(self) -> None:
        self._interrupt_event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Interrupts:
        with contextlib.suppress(*_UNSUPPORTED_SIGNAL_ERRORS):
            self._loop.add_signal_handler(signal.SIGINT, self._interrupt_event.set)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(*_UNSUPPORTED_SIGNAL_ERRORS):
            self._loop.remove_signal_handler(signal.SIGINT)

    async def wait(self) -> None:
        """Wait for Ctrl-C; each press counts once."""
        await self._interrupt_event.wait()
        self._interrupt_event.clear()

    def clear(self) -> None:
        """Discard earlier presses, which were meant for work that has ended."""
        self._interrupt_event.clear()
