"""Ctrl-C as an awaitable event, instead of the end of the program."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from types import TracebackType

__all__ = ["Interrupts"]

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(*_UNSUPPORTED_SIGNAL_ERRORS):
            self._loop.remove_signal_handler(signal.SIGINT)

    async def wait(self) -> None:
        """Wait for Ctrl-C; each press counts once."""
        await self._interrupt_event.wait()
        self._interrupt_event.clear()

    def clear(self) -> None:
        """Discard earlier presses, which were meant for work that has ended."""
        self._interrupt_event.clear()
