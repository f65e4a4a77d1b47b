"""An interactive chat at the terminal."""

from __future__ import annotations

import asyncio
import sys

from toolyard.agents.chat.chats import ChatService
from toolyard.cli.chat.chat_app import LOCAL_OWNER_ID
from toolyard.cli.chat.current_chat import CurrentChat
from toolyard.cli.chat.interrupts import Interrupts
from toolyard.cli.chat.line_editor import LineEditor
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.slash_commands import COMMAND_NAMES, SlashCommands
from toolyard.cli.chat.turn_follower import TurnFollower, UserLeft
from toolyard.cli.output.messages import show_error, show_note, show_problems
from toolyard.cli.output.terminal import is_interactive, style_text
from toolyard.errors import AgentsError, ConfigError, ToolyardError
from toolyard.types.chat import Kind, TurnState

__all__ = ["TerminalConversation"]

_MAX_SHOWN_PAST_EVENTS = 100
"""Minimum number of past events to show when a chat is resumed, extended to the start of a turn."""
_INTERRUPTED_EXIT_CODE = 130


class TerminalConversation:
    """One person at one terminal, in the chat ``current_chat``."""

    def __init__(
        self, chats: ChatService, current_chat: CurrentChat, line_editor: LineEditor, interrupts: Interrupts
    ) -> None:
        self._chats = chats
        self._current_chat = current_chat
        self._line_editor = line_editor
        self._interrupts = interrupts
        self._screen = Screen()
        self._commands = SlashCommands(chats, current_chat, self._follow_turn)

    async def run(self) -> int:
        """Run until the person leaves, and return the exit code."""
        self._print_greeting()
        # The model library is slow to import, so it is imported while the person types the first message.
        warming = asyncio.ensure_future(self._chats.preload(self._current_chat.model))
        try:
            await self._resume_chat()
            while True:
                await self._handle_input(await self._read_input())
        except UserLeft as left:
            return self._print_resume_hint(_INTERRUPTED_EXIT_CODE if left.by_interrupt else 0)
        finally:
            warming.cancel()

    def _print_greeting(self) -> None:
        line = f"{self._current_chat.describe()}  (/help, Ctrl-C stops, Ctrl-D leaves)"
        print(style_text(line, "dim", sys.stderr), file=sys.stderr, flush=True)

    def _print_resume_hint(self, code: int) -> int:
        chat = self._current_chat.chat
        if chat is not None and chat.turn:
            words = f"`toolyard chat --resume {chat.id[:8]}` comes back to this chat"
            print(style_text(words, "dim", sys.stderr), file=sys.stderr)
        return code

    async def _read_input(self) -> str:
        """Read the next input. Raises UserLeft, also at the end of input."""
        self._interrupts.clear()
        reading = asyncio.ensure_future(self._line_editor.read())
        pressed = asyncio.ensure_future(self._interrupts.wait())
        try:
            await asyncio.wait({reading, pressed}, return_when=asyncio.FIRST_COMPLETED)
            text = reading.result() if reading.done() else None
            if text is None:
                print(file=sys.stderr)
                raise UserLeft(by_interrupt=not reading.done())
            return text
        finally:
            reading.cancel()
            pressed.cancel()

    async def _handle_input(self, text: str) -> None:
        if not text.strip():
            return
        name, _, rest = text.partition(" ")
        try:
            if name in ("/quit", "/exit"):
                raise UserLeft(by_interrupt=False)
            if name in COMMAND_NAMES:
                await self._commands.run(name, rest.strip())
            elif name.startswith("/"):
                show_error(f"there is no command {name}", "see /help; a message can begin with a blank")
            else:
                chat = await self._current_chat.get_or_create()
                await self._follow_turn(await self._chats.send(LOCAL_OWNER_ID, chat.id, text))
        except (ConfigError, AgentsError) as error:
            show_problems(error.problems)
        except ToolyardError as error:
            show_error(error.cause, error.hint)

    async def _follow_turn(self, turn: int) -> None:
        """Follow a running turn to its end."""
        chat = await self._current_chat.refresh()
        await TurnFollower(
            self._chats, chat, self._screen, self._interrupts, can_ask=is_interactive()
        ).follow(turn)
        await self._current_chat.refresh()

    async def _resume_chat(self) -> None:
        """Show the past of a chat, and follow its running turn."""
        chat = self._current_chat.chat
        if chat is None:
            return
        events = await self._chats.list_latest_events(LOCAL_OWNER_ID, chat.id, limit=_MAX_SHOWN_PAST_EVENTS)
        if events and events[0].turn > 1 and events[0].seq > 1:
            show_note("what was said before that is in the web app, and in /export")
        for event in events:
            self._screen.show_past(event)
            if event.kind is Kind.USER:
                self._line_editor.add_history(str(event.body.get("text") or ""))
        self._screen.end_line()
        if chat.state is not TurnState.IDLE:
            await self._chats.resume_if_answered(LOCAL_OWNER_ID, chat.id)
            turn = TurnFollower(self._chats, chat, self._screen, self._interrupts, can_ask=is_interactive())
            turn.catch_up([event for event in events if event.turn == chat.turn])
            await turn.follow(events[-1].seq if events else 0)
