"""An interactive chat at the terminal, with line editing, history and slash commands."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.markdown_export import export_markdown
from toolyard.agents.chat.tool_set import ToolView
from toolyard.agents.chat.turn_snapshot import ChatSnapshot
from toolyard.cli.chat.current_chat import CurrentChat
from toolyard.cli.chat.screen import Screen
from toolyard.cli.chat.turn_follower import Interrupts, TurnFollower, UserExited
from toolyard.cli.input.prompts import read_line_async
from toolyard.cli.invocation import INTERRUPT_EXIT_CODE, Usage, explain_write_error
from toolyard.cli.output import console
from toolyard.errors import AgentsError, ConfigError, ToolyardError
from toolyard.types.account import LOCAL_OWNER_ID
from toolyard.types.chat import Chat, TurnState, UserMessage

__all__ = ["COMMAND_NAMES", "LineEditor", "SlashCommands", "TerminalConversation"]

_COMMAND_HELP = {
    "/help": "show this list",
    "/agent [NAME]": "switch to another agent, or - for none; without a name, list the agents",
    "/model [NAME]": "switch to another model; without a name, list the models",
    "/tools": "list the tools of this chat, and why others are hidden",
    "/attach [FILE]": "attach a picture or text file to the next message; without a file, attach none",
    "/new": "start a new chat",
    "/retry": "run the last turn again",
    "/edit TEXT": "send another text in place of your last message; both are kept",
    "/export [FILE]": "write this chat as Markdown to a file, or print it",
    "/quit": "leave the chat (also Ctrl-D)",
}
COMMAND_NAMES = frozenset(name.partition(" ")[0] for name in _COMMAND_HELP)
"""Names of the commands."""

_NO_AGENT = "-"
_PIECE_BYTES = 256 * 1024


class SlashCommands:
    """Runs slash commands. ``follow_turn`` follows a turn that a command started."""

    def __init__(
        self, chats: ChatService, current_chat: CurrentChat, follow_turn: Callable[[int], Awaitable[None]]
    ) -> None:
        self._chats = chats
        self._current_chat = current_chat
        self._follow_turn = follow_turn

    async def run(self, name: str, argument: str) -> None:
        """Run one command with its argument. Raises ToolyardError."""
        match name:
            case "/agent":
                await self._change_agent(argument)
            case "/model":
                await self._change_model(argument)
            case "/tools":
                await self._print_tools()
            case "/attach":
                await self._attach_file(argument)
            case "/new":
                self._current_chat.start_new()
                console.print_to_stderr(self._current_chat.describe())
            case "/retry":
                chat = await self._current_chat.get_or_create()
                await self._follow_turn(await self._chats.retry(LOCAL_OWNER_ID, chat.id))
            case "/edit":
                chat = await self._current_chat.refresh()
                await self._follow_turn(await self._chats.edit(LOCAL_OWNER_ID, chat.id, chat.turn, argument))
            case "/export":
                await self._export_chat(argument)
            case _:
                _print_rows(list(_COMMAND_HELP.items()))

    async def _change_agent(self, name: str) -> None:
        if not name:
            _print_rows(
                [("-", "no agent, all tools"), *self._current_chat.list_agents()],
                self._current_chat.agent or _NO_AGENT,
            )
            return
        await self._current_chat.choose(agent=None if name == _NO_AGENT else name)
        console.print_to_stderr(self._current_chat.describe())

    async def _change_model(self, name: str) -> None:
        if not name:
            _print_rows(self._current_chat.list_models(), self._current_chat.model or "")
            return
        await self._current_chat.choose(model=name)
        console.print_to_stderr(self._current_chat.describe())

    async def _print_tools(self) -> None:
        tools = await self._chats.list_tools(LOCAL_OWNER_ID, (await self._current_chat.get_or_create()).id)
        shown = [tool for tool in tools if tool.shown]
        _print_rows([(_format_tool_name(tool), _format_tool_summary(tool)) for tool in shown])
        hidden = [tool for tool in tools if not tool.shown]
        if hidden:
            console.print_to_stderr(f"{console.format_count(len(hidden), 'tool')} hidden:")
            _print_rows([(_format_tool_name(tool), console.one_line(tool.why, 100)) for tool in hidden])
        if not tools:
            console.show_note("no tools available", "check your servers with `toolyard servers`")

    async def _attach_file(self, file: str) -> None:
        attachments = self._current_chat.attachments
        if not file:
            attachments.clear()
        else:
            attachments.append(await self._chats.attachments.upload(LOCAL_OWNER_ID, file, _read_pieces(file)))
        names = ", ".join(console.one_line(each.name, 60) for each in attachments) or "no files"
        console.print_to_stderr(f"the next message has {names}")

    async def _export_chat(self, file: str) -> None:
        chat = await self._current_chat.get_or_create()
        text = "".join([part async for part in export_markdown(self._chats, chat)])
        if not file:
            sys.stdout.write(console.make_printable(text) if console.is_terminal(sys.stdout) else text)
            sys.stdout.flush()
            return
        _write_export(file, text)


async def _read_pieces(file: str) -> AsyncIterator[bytes]:
    try:
        opened = await asyncio.to_thread(lambda: Path(file).expanduser().open("rb"))
        with opened:
            while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
                yield piece
    except OSError as error:
        raise Usage(f"{file} cannot be read: {error.strerror or error}") from None


def _write_export(file: str, text: str) -> None:
    with explain_write_error(file):
        Path(file).expanduser().write_text(text, "utf-8")
    console.print_to_stderr(f"wrote {file}")


def _format_tool_name(tool: ToolView) -> str:
    """Return the tool's name; built-in tools have another mark than those of servers."""
    return f"{'◇' if tool.native else '●'} {tool.name}"


def _format_tool_summary(tool: ToolView) -> str:
    asks = "asks first. " if tool.asks else ""
    return f"{asks}{console.one_line(tool.description, 90)}"


def _print_rows(rows: Sequence[tuple[str, str]], current: str | None = None) -> None:
    width = max((len(row[0]) for row in rows), default=0)
    for name, line in rows:
        mark = "* " if name == current else "  "
        cell = console.style_text(console.one_line(name).ljust(width), "cyan", sys.stderr)
        console.print_to_stderr(f"{mark}{cell}  {console.one_line(line, 120)}".rstrip())


_PROMPT_TEXT = "> "
_DISABLE_BRACKETED_PASTE = "\x1b[?2004l"


class LineEditor:
    """Reads lines. After a cancelled read the program must end, since only the exit restores the terminal."""

    def __init__(self) -> None:
        has_terminal = console.is_terminal(sys.stdin) and console.is_terminal(sys.stdout)
        self._readline = _import_readline() if has_terminal else None
        self._saved_terminal_attributes: list[Any] | None = None

    def __enter__(self) -> LineEditor:
        if self._readline is not None:
            import termios  # there where readline is

            with contextlib.suppress(termios.error):
                self._saved_terminal_attributes = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        if self._saved_terminal_attributes is not None:
            import termios

            sys.stdout.write(_DISABLE_BRACKETED_PASTE)
            sys.stdout.flush()
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._saved_terminal_attributes)

    def add_history(self, text: str) -> None:
        """Add a line to the history."""
        if self._readline is not None and text.isprintable():
            self._readline.add_history(text)

    async def read(self) -> str | None:
        """Return the input without trailing blanks, or None at the end of input. A backslash at the end
        continues the line."""
        lines: list[str] = []
        while True:
            line = await self._read_line("  " if lines else _PROMPT_TEXT)
            if line is None:
                return None
            if not line.endswith("\\"):
                return "\n".join([*lines, line]).rstrip()
            lines.append(line[:-1])

    async def _read_line(self, prompt: str) -> str | None:
        if self._readline is not None:
            return await _read_line_in_thread(prompt)
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = await read_line_async()
        return line.rstrip("\n") if line else None


async def _read_line_in_thread(prompt: str) -> str | None:
    """Read a line in a thread, because Python's line editor blocks. The thread ends with the line or the
    program."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def deliver_line(line: str | None) -> None:
        if not answer.done():
            answer.set_result(line)

    def read_line() -> None:
        try:
            line: str | None = input(prompt)
        except (EOFError, OSError, UnicodeDecodeError):
            line = None
        with contextlib.suppress(RuntimeError):  # The loop is closed, and the caller with it.
            loop.call_soon_threadsafe(deliver_line, line)

    threading.Thread(target=read_line, name="prompt", daemon=True).start()
    return await answer


def _import_readline() -> Any:
    try:
        import readline  # some systems have none
    except ImportError:
        return None
    return readline


_MAX_SHOWN_PAST_EVENTS = 100
"""Minimum number of past events to show when a chat is resumed, extended to the start of a turn."""


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
        except UserExited as left:
            return self._print_resume_hint(INTERRUPT_EXIT_CODE if left.by_interrupt else 0)
        finally:
            warming.cancel()

    def _print_greeting(self) -> None:
        line = f"{self._current_chat.describe()}  (/help; Ctrl-C stops a turn, Ctrl-D quits)"
        console.print_to_stderr(console.style_text(line, "dim", sys.stderr))

    def _print_resume_hint(self, code: int) -> int:
        chat = self._current_chat.chat
        if chat is not None and chat.turn:
            words = f"`toolyard chat --resume {chat.id[:8]}` resumes this chat"
            console.print_to_stderr(console.style_text(words, "dim", sys.stderr))
        return code

    async def _read_input(self) -> str:
        """Read the next input. Raises UserExited, also at the end of input."""
        self._interrupts.clear()
        reading = asyncio.ensure_future(self._line_editor.read())
        pressed = asyncio.ensure_future(self._interrupts.wait())
        try:
            await asyncio.wait({reading, pressed}, return_when=asyncio.FIRST_COMPLETED)
            text = reading.result() if reading.done() else None
            if text is None:
                print(file=sys.stderr)
                raise UserExited(by_interrupt=not reading.done())
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
                raise UserExited(by_interrupt=False)
            if name in COMMAND_NAMES:
                await self._commands.run(name, rest.strip())
            elif name.startswith("/"):
                console.show_error(
                    f"unknown command {name}",
                    "/help lists the commands; to send text that begins with a slash, put a space before it",
                )
            else:
                await self._follow_turn(await self._send_message(text))
        except (ConfigError, AgentsError) as error:
            console.show_problems(error.problems)
        except ToolyardError as error:
            console.show_error(error.cause, error.hint)

    async def _send_message(self, text: str) -> int:
        """Send a message with the attached files. Return the number of its turn."""
        chat, attachments = await self._current_chat.get_or_create(), self._current_chat.attachments
        turn = await self._chats.send(LOCAL_OWNER_ID, chat.id, text, [each.id for each in attachments])
        attachments.clear()
        return turn

    async def _follow_turn(self, turn: int) -> None:
        """Follow a running turn to its end."""
        await self._make_follower(await self._current_chat.refresh()).follow(turn)
        await self._current_chat.refresh()

    def _make_follower(self, chat: Chat) -> TurnFollower:
        can_ask = console.is_interactive()
        return TurnFollower(self._chats, chat, self._screen, self._interrupts, can_ask=can_ask)

    async def _resume_chat(self) -> None:
        """Show the past of a chat, and follow its running turn."""
        chat = self._current_chat.chat
        if chat is None:
            return
        events = await self._chats.list_latest_events(LOCAL_OWNER_ID, chat.id, limit=_MAX_SHOWN_PAST_EVENTS)
        if events and events[0].turn > 1 and events[0].seq > 1:
            console.show_note("earlier messages are in the web app and in /export")
        calls = [call for turn in ChatSnapshot.from_events(events).turns for call in turn.calls]
        # Results of earlier versions do not say that they were stopped; the end of their turn does.
        stopped_seqs = {call.result_seq for call in calls if call.state == "stopped"}
        for event in events:
            if event.seq in stopped_seqs:
                event = replace(event, body={**event.body, "stopped": True})
            self._screen.show_past(event)
            if isinstance(event.data, UserMessage):
                self._line_editor.add_history(event.data.text)
        self._screen.end_line()
        if chat.state is not TurnState.IDLE:
            await self._chats.resume_if_answered(LOCAL_OWNER_ID, chat.id)
            turn = self._make_follower(chat)
            turn.catch_up([event for event in events if event.turn == chat.turn])
            await turn.follow(events[-1].seq if events else 0)
