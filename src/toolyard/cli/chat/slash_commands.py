"""Slash commands of the terminal chat."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from toolyard.agents.chat.chats import ChatService
from toolyard.agents.chat.markdown_export import export_markdown
from toolyard.agents.chat.tool_set import ToolView
from toolyard.cli.chat.chat_services import LOCAL_OWNER_ID
from toolyard.cli.chat.current_chat import CurrentChat
from toolyard.cli.invocation import Usage, explain_write_error
from toolyard.cli.output.console import (
    format_count,
    is_terminal,
    make_printable,
    one_line,
    show_note,
    style_text,
)

__all__ = ["COMMAND_NAMES", "SlashCommands"]

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
    """Runs slash commands. ``on_turn_started`` follows a turn that a command started."""

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
                _print_message(self._current_chat.describe())
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
        _print_message(self._current_chat.describe())

    async def _change_model(self, name: str) -> None:
        if not name:
            _print_rows(self._current_chat.list_models(), self._current_chat.model or "")
            return
        await self._current_chat.choose(model=name)
        _print_message(self._current_chat.describe())

    async def _print_tools(self) -> None:
        tools = await self._chats.list_tools(LOCAL_OWNER_ID, (await self._current_chat.get_or_create()).id)
        shown = [tool for tool in tools if tool.shown]
        _print_rows([(_format_tool_name(tool), _format_tool_summary(tool)) for tool in shown])
        hidden = [tool for tool in tools if not tool.shown]
        if hidden:
            _print_message(f"{format_count(len(hidden), 'tool')} hidden:")
            _print_rows([(_format_tool_name(tool), one_line(tool.why, 100)) for tool in hidden])
        if not tools:
            show_note("no tools available", "check your servers with `toolyard servers`")

    async def _attach_file(self, file: str) -> None:
        attachments = self._current_chat.attachments
        if not file:
            attachments.clear()
        else:
            attachments.append(await self._chats.attachments.upload(LOCAL_OWNER_ID, file, _read_pieces(file)))
        names = ", ".join(one_line(each.name, 60) for each in attachments) or "no files"
        _print_message(f"the next message has {names}")

    async def _export_chat(self, file: str) -> None:
        chat = await self._current_chat.get_or_create()
        text = "".join([part async for part in export_markdown(self._chats, chat)])
        if not file:
            sys.stdout.write(make_printable(text) if is_terminal(sys.stdout) else text)
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
    _print_message(f"wrote {file}")


def _format_tool_name(tool: ToolView) -> str:
    """Return the tool's name; built-in tools have another mark than those of servers."""
    return f"{'◇' if tool.native else '●'} {tool.name}"


def _format_tool_summary(tool: ToolView) -> str:
    asks = "asks first. " if tool.asks else ""
    return f"{asks}{one_line(tool.description, 90)}"


def _print_rows(rows: Sequence[tuple[str, str]], current: str | None = None) -> None:
    width = max((len(row[0]) for row in rows), default=0)
    for name, line in rows:
        mark = "* " if name == current else "  "
        _print_message(
            (
                f"{mark}{style_text(one_line(name).ljust(width), 'cyan', sys.stderr)}  {one_line(line, 120)}"
            ).rstrip()
        )


def _print_message(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
