"""What can be said to the program instead of the model: lines that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from toolyard.agents.chat.chats import Chats
from toolyard.agents.chat.markdown_export import markdown
from toolyard.agents.chat.tool_picker import ToolView
from toolyard.cli.chat.chat_app import OWNER
from toolyard.cli.chat.current_chat import Seat
from toolyard.cli.error_exit import Usage
from toolyard.cli.output.messages import note
from toolyard.cli.output.safe_text import count, one_line, plain
from toolyard.cli.output.terminal import is_terminal, paint

__all__ = ["COMMANDS", "Commands"]

_WRITTEN = {
    "/help": "this list",
    "/agent [NAME]": "another agent; - for none; without a name: those that there are",
    "/model [NAME]": "another model; without a name: those that there are",
    "/tools": "the tools of this chat, and why others are hidden",
    "/new": "begin another chat",
    "/retry": "the last turn once more",
    "/export [FILE]": "this chat as Markdown, into a file or here",
    "/quit": "leave, as Ctrl-D does",
}
COMMANDS = frozenset(name.partition(" ")[0] for name in _WRITTEN)
"""Their first words."""

_NONE = "-"


class Commands:
    """Does what was said. ``begun`` follows a turn that was begun."""

    def __init__(self, chats: Chats, seat: Seat, begun: Callable[[int], Awaitable[None]]) -> None:
        self._chats = chats
        self._seat = seat
        self._begun = begun

    async def run(self, name: str, rest: str) -> None:
        """One command, with what stands after it. Raises ToolyardError."""
        match name:
            case "/agent":
                await self._agent(rest)
            case "/model":
                await self._model(rest)
            case "/tools":
                await self._tools()
            case "/new":
                self._seat.stand_up()
                _say(self._seat.describe())
            case "/retry":
                chat = await self._seat.taken()
                await self._begun(await self._chats.retry(OWNER, chat.id))
            case "/export":
                await self._export(rest)
            case _:
                _list(list(_WRITTEN.items()))

    async def _agent(self, name: str) -> None:
        if not name:
            _list([("-", "no agent: all tools"), *self._seat.agents()], self._seat.agent or _NONE)
            return
        await self._seat.choose(agent=None if name == _NONE else name)
        _say(self._seat.describe())

    async def _model(self, name: str) -> None:
        if not name:
            _list(self._seat.models(), self._seat.model or "")
            return
        await self._seat.choose(model=name)
        _say(self._seat.describe())

    async def _tools(self) -> None:
        tools = await self._chats.tools(OWNER, (await self._seat.taken()).id)
        shown = [tool for tool in tools if tool.shown]
        _list([(_sign(tool), _about(tool)) for tool in shown])
        hidden = [tool for tool in tools if not tool.shown]
        if hidden:
            _say(f"{count(len(hidden), 'tool')} hidden:")
            _list([(_sign(tool), one_line(tool.why, 100)) for tool in hidden])
        if not tools:
            note("there are no tools", "`toolyard servers` shows whether the servers work")

    async def _export(self, file: str) -> None:
        chat = await self._seat.taken()
        text = "".join([part async for part in markdown(self._chats, chat)])
        if not file:
            sys.stdout.write(plain(text) if is_terminal(sys.stdout) else text)
            sys.stdout.flush()
            return
        _write(file, text)


def _write(file: str, text: str) -> None:
    try:
        Path(file).expanduser().write_text(text, "utf-8")
    except OSError as error:
        raise Usage(f"{file} cannot be written: {error.strerror or error}") from None
    _say(f"wrote {file}")


def _sign(tool: ToolView) -> str:
    """Our own tools have another sign than those of servers."""
    return f"{'◇' if tool.native else '●'} {tool.name}"


def _about(tool: ToolView) -> str:
    asks = "asks first. " if tool.asks else ""
    return f"{asks}{one_line(tool.description, 90)}"


def _list(rows: Sequence[tuple[str, str]], here: str | None = None) -> None:
    width = max((len(row[0]) for row in rows), default=0)
    for name, line in rows:
        mark = "* " if name == here else "  "
        _say(
            f"{mark}{paint(one_line(name).ljust(width), 'cyan', sys.stderr)}  {one_line(line, 120)}".rstrip()
        )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
