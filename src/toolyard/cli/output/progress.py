"""Progress on a terminal's standard error: a spinner or a bar that disappears at the end."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolyard.cli.output.console import has_colour, is_terminal, one_line, show_note

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from rich.progress import Progress

__all__ = ["EARLY_OUTPUT_SECONDS", "ProgressIndicator"]

EARLY_OUTPUT_SECONDS = 2.0
"""Time after which a list prints what is there, before it waits for slower servers."""
_SHOW_AFTER_SECONDS = 0.3
"""Delay before anything is shown, so that fast work does not flicker."""


class ProgressIndicator:
    """Shows that work is in progress. ``quiet`` shows nothing.

    Without a terminal, only ``verbose`` prints progress, one line each.
    """

    def __init__(self, label: str, *, quiet: bool = False, verbose: bool = False) -> None:
        self._label = label
        self._uses_display = not quiet and is_terminal(sys.stderr)
        self._prints_lines = not quiet and verbose and not self._uses_display
        self._progress: Progress | None = None
        self._show_timer: TimerHandle | None = None

    async def __aenter__(self) -> ProgressIndicator:
        if self._uses_display:
            import asyncio  # only a terminal needs the timer

            self._show_timer = asyncio.get_running_loop().call_later(_SHOW_AFTER_SECONDS, self._start_display)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Clear the indicator, for example before a question."""
        if self._show_timer is not None:
            self._show_timer.cancel()
            self._show_timer = None
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def show_waiting(self, server_ids: Iterable[str]) -> None:
        """Report the servers that a list waits for, after what is there was printed."""
        sys.stdout.flush()
        show_note(f"waiting for {', '.join(server_ids)}")

    def on_progress(self, params: Mapping[str, Any]) -> None:
        """Handle a progress notification, whatever values a server put into it."""
        done, total = _parse_number(params.get("progress")), _parse_number(params.get("total"))
        message = params.get("message")
        words = one_line(message, 60) if isinstance(message, str) else ""
        if self._prints_lines:
            share = f"{done:g}" if total is None else f"{done or 0:g}/{total:g}"
            print(f"progress: {share} {words}".rstrip(), file=sys.stderr)
        elif self._uses_display:
            self._start_display()
            if self._progress is not None:
                task = self._progress.task_ids[0]
                label = f"{self._label}  {words}" if words else self._label
                self._progress.update(task, completed=done, total=total, description=label)

    def _start_display(self) -> None:
        if self._progress is not None:
            return
        from rich.console import Console  # only a terminal needs it
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, no_color=not has_colour(sys.stderr), highlight=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._progress.add_task(self._label, total=None)
        self._progress.start()


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
