"""A chat that somebody has at the terminal: line by line, until they leave."""

from __future__ import annotations

import asyncio
import sys

from toolyard.agents.chat.chats import Chats
from toolyard.cli.chat.chat_app import OWNER
from toolyard.cli.chat.current_chat import Seat
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.line_editor import Prompt
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.slash_commands import COMMANDS, Commands
from toolyard.cli.chat.turn_view import Left, Turn
from toolyard.cli.output.messages import note, show_error, show_problems
from toolyard.cli.output.terminal import paint, person_is_there
from toolyard.errors import AgentsError, ConfigError, ToolyardError
from toolyard.types.chat import Kind, TurnState

__all__ = ["Conversation"]

_PAST = 100
"""Events of a chat that is taken up again which are shown, or some more, up to the beginning of a turn."""
_INTERRUPTED = 130


class Conversation:
    """One person at one terminal. ``seat`` is the chat that they are in."""

    def __init__(self, chats: Chats, seat: Seat, prompt: Prompt, interrupts: Interrupts) -> None:
        self._chats = chats
        self._seat = seat
        self._prompt = prompt
        self._interrupts = interrupts
        self._screen = Screen()
        self._commands = Commands(chats, seat, self._begun)

    async def run(self) -> int:
        """Until they leave; the exit code."""
        self._greet()
        # Slow to load, and needed with the first message: there is time while it is being typed.
        warming = asyncio.ensure_future(self._chats.warm(self._seat.model))
        try:
            await self._take_up()
            while True:
                await self._act(await self._next())
        except Left as left:
            return self._leave(_INTERRUPTED if left.by_interrupt else 0)
        finally:
            warming.cancel()

    def _greet(self) -> None:
        line = f"{self._seat.describe()}  (/help, Ctrl-C stops, Ctrl-D leaves)"
        print(paint(line, "dim", sys.stderr), file=sys.stderr, flush=True)

    def _leave(self, code: int) -> int:
        chat = self._seat.chat
        if chat is not None and chat.turn:
            words = f"`toolyard chat --resume {chat.id[:8]}` comes back to this chat"
            print(paint(words, "dim", sys.stderr), file=sys.stderr)
        return code

    async def _next(self) -> str:
        """What they type next. Raises Left at the end of the input, too."""
        self._interrupts.forget()
        reading = asyncio.ensure_future(self._prompt.read())
        pressed = asyncio.ensure_future(self._interrupts.pressed())
        try:
            await asyncio.wait({reading, pressed}, return_when=asyncio.FIRST_COMPLETED)
            text = reading.result() if reading.done() else None
            if text is None:
                print(file=sys.stderr)
                raise Left(by_interrupt=not reading.done())
            return text
        finally:
            reading.cancel()
            pressed.cancel()

    async def _act(self, text: str) -> None:
        if not text.strip():
            return
        name, _, rest = text.partition(" ")
        try:
            if name in ("/quit", "/exit"):
                raise Left(by_interrupt=False)
            if name in COMMANDS:
                await self._commands.run(name, rest.strip())
            elif name.startswith("/"):
                show_error(f"there is no command {name}", "see /help; a message can begin with a blank")
            else:
                chat = await self._seat.taken()
                await self._begun(await self._chats.send(OWNER, chat.id, text))
        except (ConfigError, AgentsError) as error:
            show_problems(error.problems)
        except ToolyardError as error:
            show_error(error.cause, error.hint)

    async def _begun(self, turn: int) -> None:
        """A turn runs: follow it to its end."""
        chat = await self._seat.refreshed()
        await Turn(self._chats, chat, self._screen, self._interrupts, asks=person_is_there()).follow(turn)
        await self._seat.refreshed()

    async def _take_up(self) -> None:
        """What happened in a chat before, and what goes on in it still."""
        chat = self._seat.chat
        if chat is None:
            return
        events = await self._chats.latest(OWNER, chat.id, limit=_PAST)
        if events and events[0].turn > 1 and events[0].seq > 1:
            note("what was said before that is in the web app, and in /export")
        for event in events:
            self._screen.show_past(event)
            if event.kind is Kind.USER:
                self._prompt.remember(str(event.body.get("text") or ""))
        self._screen.end_line()
        if chat.state is not TurnState.IDLE:
            await self._chats.take_up(OWNER, chat.id)
            turn = Turn(self._chats, chat, self._screen, self._interrupts, asks=person_is_there())
            turn.catch_up([event for event in events if event.turn == chat.turn])
            await turn.follow(events[-1].seq if events else 0)
