"""Reading what the person writes, with line editing and history where the terminal has them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from types import TracebackType
from typing import Any

from toolyard.cli.input.prompts import line_while_running
from toolyard.cli.output.terminal import is_terminal

__all__ = ["Prompt"]

_SIGN = "> "
_END_OF_PASTE = "\x1b[?2004l"


class Prompt:
    """The line that the person types on. Whoever stops waiting for it in the middle must leave: the terminal
    is put back as it was at the end."""

    def __init__(self) -> None:
        self._readline = _readline() if is_terminal(sys.stdin) and is_terminal(sys.stdout) else None
        self._before: list[Any] | None = None

    def __enter__(self) -> Prompt:
        if self._readline is not None:
            import termios  # there where readline is

            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(sys.stdin.fileno())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            import termios

            sys.stdout.write(_END_OF_PASTE)
            sys.stdout.flush()
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._before)

    def remember(self, text: str) -> None:
        """Something that was said before, for the arrow keys."""
        if self._readline is not None and text.isprintable():
            self._readline.add_history(text)

    async def read(self) -> str | None:
        """What was typed, without blanks at its end; None at the end of the input. A line that ends with a
        backslash goes on in the next one."""
        lines: list[str] = []
        while True:
            line = await self._line("  " if lines else _SIGN)
            if line is None:
                return None
            if not line.endswith("\\"):
                return "\n".join([*lines, line]).rstrip()
            lines.append(line[:-1])

    async def _line(self, sign: str) -> str | None:
        if self._readline is not None:
            return await _from_thread(sign)
        sys.stderr.write(sign)
        sys.stderr.flush()
        line = await line_while_running()
        return line.rstrip("\n") if line else None


async def _from_thread(sign: str) -> str | None:
    """Python's line editor waits for keys in a thread, since nothing else may wait for it. The thread ends
    with the line, or with the program."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()

    def give(line: str | None) -> None:
        if not answer.done():
            answer.set_result(line)

    def read() -> None:
        try:
            line: str | None = input(sign)
        except (EOFError, OSError, UnicodeDecodeError):
            line = None
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(give, line)

    threading.Thread(target=read, name="prompt", daemon=True).start()
    return await answer


def _readline() -> Any:
    try:
        import readline  # some systems have none
    except ImportError:
        return None
    return readline
