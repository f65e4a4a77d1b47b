"""Input lines with editing and history, where the terminal supports them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from types import TracebackType
from typing import Any

from toolyard.cli.input.prompts import read_line_async
from toolyard.cli.output.terminal import is_terminal

__all__ = ["LineEditor"]

_PROMPT_TEXT = "> "
_DISABLE_BRACKETED_PASTE = "\x1b[?2004l"


class LineEditor:
    """Reads lines. After a cancelled read the program must end, since only the exit restores the terminal."""

    def __init__(self) -> None:
        self._readline = _import_readline() if is_terminal(sys.stdin) and is_terminal(sys.stdout) else None
        self._saved_terminal_attributes: list[Any] | None = None

    def __enter__(self) -> LineEditor:
        if self._readline is not None:
            import termios  # there where readline is

            with contextlib.suppress(termios.error):
                self._saved_terminal_attributes = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(deliver_line, line)

    threading.Thread(target=read_line, name="prompt", daemon=True).start()
    return await answer


def _import_readline() -> Any:
    try:
        import readline  # some systems have none
    except ImportError:
        return None
    return readline
