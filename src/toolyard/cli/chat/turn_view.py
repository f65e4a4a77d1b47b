"""Following a turn to its end: what happens is shown, what is asked is put to the person."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from toolyard.agents.chat.chats import Chats
from toolyard.agents.chat.errors import ChatError
from toolyard.cli.chat.approval_prompts import Approved, InputEnded, Replied, ask_approval, ask_question
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.tool_cards import Body
from toolyard.cli.output.messages import note
from toolyard.types.chat import Chat, Ending, Event, Kind

__all__ = ["Ended", "Left", "Shower", "Turn"]

_PATIENCE = 30.0
_NOBODY = "nobody is here who could be asked"


class Left(Exception):
    """The person leaves before the turn is over. ``by_interrupt``: with Ctrl-C."""

    def __init__(self, *, by_interrupt: bool) -> None:
        super().__init__()
        self.by_interrupt = by_interrupt


class Shower(Protocol):
    """Where events go to."""

    def show(self, event: Event) -> None: ...

    def end_line(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended. ``refused``: something was refused because nobody could be asked."""

    why: Ending
    refused: bool


class Turn:
    """One turn of a chat, as somebody follows it. ``asks``: there is a person who can be asked."""

    def __init__(
        self, chats: Chats, chat: Chat, screen: Shower, interrupts: Interrupts, *, asks: bool
    ) -> None:
        self._chats = chats
        self._chat = chat
        self._screen = screen
        self._interrupts = interrupts
        self._asks = asks
        self._calls: dict[str, Body] = {}
        self._open: deque[Event] = deque()
        """What is still to be asked, the oldest first."""
        self._asking: tuple[Event, asyncio.Task[Approved | Replied]] | None = None
        self._held: list[Event] = []
        """What happened while the person was asked: the screen is theirs until they have answered."""
        self._stopping = False
        self._refused = False
        self._why: Ending | None = None

    def catch_up(self, events: Sequence[Event]) -> None:
        """What happened before and is on the screen: calls to know, questions that are open."""
        for event in events:
            self._take_in(event)

    async def follow(self, after: int) -> Ended:
        """Show what comes after a number until the turn is over. Raises Left."""
        pressed = asyncio.ensure_future(self._interrupts.pressed())
        coming: asyncio.Task[Sequence[Event]] | None = None
        try:
            while self._why is None:
                await self._ask_next()
                coming = coming or asyncio.ensure_future(self._events(after))
                tasks: set[asyncio.Task[Any]] = {pressed, coming}
                if self._asking is not None:
                    tasks.add(self._asking[1])
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if pressed.done():
                    await self._interrupted()
                    pressed = asyncio.ensure_future(self._interrupts.pressed())
                if self._asking is not None and self._asking[1].done():
                    await self._answered()
                if coming.done():
                    events, coming = coming.result(), None
                    after = events[-1].seq if events else after
                    for event in events:
                        self._happened(event)
            return Ended(self._why, self._refused)
        finally:
            self._drop_question()
            pressed.cancel()
            if coming is not None:
                coming.cancel()

    async def _events(self, after: int) -> Sequence[Event]:
        return await self._chats.wait(self._chat.owner, self._chat.id, after, _PATIENCE)

    # What happens.

    def _happened(self, event: Event) -> None:
        if self._asking is not None and _settles(event, self._asking[0]):
            self._drop_question()
            note("that was answered elsewhere" if event.kind is not Kind.END else "the turn is over")
            self._release()
        if self._asking is not None:
            self._held.append(event)
        else:
            self._show(event)

    def _show(self, event: Event) -> None:
        self._screen.show(event)
        self._take_in(event)

    def _take_in(self, event: Event) -> None:
        match event.kind:
            case Kind.CALL:
                self._calls[str(event.body.get("id"))] = event.body
            case Kind.ASK | Kind.QUESTION:
                self._open.append(event)
            case Kind.ANSWER | Kind.ANSWERED | Kind.RESULT | Kind.END:
                self._open = deque(one for one in self._open if not _settles(event, one))
                if event.kind is Kind.END:
                    self._why = Ending(str(event.body.get("why")))
            case _:
                pass

    def _release(self) -> None:
        held, self._held = self._held, []
        for event in held:
            self._show(event)

    # Asking.

    async def _ask_next(self) -> None:
        while self._asking is None and self._open:
            event = self._open.popleft()
            if self._asks:
                self._screen.end_line()
                self._asking = (event, asyncio.ensure_future(self._ask(event)))
            else:
                await self._refuse(event)

    async def _ask(self, event: Event) -> Approved | Replied:
        if event.kind is Kind.ASK:
            call = self._calls.get(str(event.body.get("id")), {})
            return await ask_approval(call, str(event.body.get("reason") or ""))
        return await ask_question(event.body)

    async def _refuse(self, event: Event) -> None:
        self._refused = True
        self._screen.end_line()
        if event.kind is Kind.ASK:
            name = self._calls.get(str(event.body.get("id")), {}).get("name")
            note(
                f"{name} was refused: it needs an approval, and {_NOBODY}",
                "run it in a terminal, or set write_tools to allow",
            )
            await self._send(event, Approved(False))
        else:
            note(f"{event.body.get('server')} asked something, and {_NOBODY}", "run it in a terminal")
            await self._send(event, Replied("decline"))

    async def _answered(self) -> None:
        assert self._asking is not None
        (event, task), self._asking = self._asking, None
        try:
            answer = task.result()
        except InputEnded:
            if event.kind is Kind.ASK:
                # It can be answered another time, here or in the web app.
                raise Left(by_interrupt=False) from None
            answer = Replied("cancel")
        await self._send(event, answer)
        self._release()

    async def _send(self, event: Event, answer: Approved | Replied) -> None:
        owner = self._chat.owner
        try:
            if isinstance(answer, Approved):
                approval = str(event.body.get("approval"))
                await self._chats.answer(owner, approval, yes=answer.yes, remember=answer.remember)
            else:
                question = str(event.body.get("id"))
                await self._chats.respond(owner, self._chat.id, question, answer.action, answer.content)
        except ChatError as error:
            note(error.cause, error.hint)

    def _drop_question(self) -> None:
        if self._asking is not None:
            self._asking[1].cancel()
            self._asking = None

    # Stopping.

    async def _interrupted(self) -> None:
        self._drop_question()
        self._screen.end_line()
        if self._stopping:
            raise Left(by_interrupt=True)
        self._stopping = True
        self._open.clear()
        await self._chats.stop(self._chat.owner, self._chat.id)
        self._release()


def _settles(event: Event, asked: Event) -> bool:
    """Whether an event leaves nothing to ask of an earlier one."""
    if event.kind is Kind.END:
        return True
    if asked.kind is Kind.ASK:
        by_answer = event.kind is Kind.ANSWER and event.body.get("approval") == asked.body.get("approval")
        return by_answer or (event.kind is Kind.RESULT and event.body.get("id") == asked.body.get("id"))
    return event.kind is Kind.ANSWERED and event.body.get("id") == asked.body.get("id")
