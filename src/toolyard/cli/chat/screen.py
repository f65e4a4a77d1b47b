"""The events of a chat on a terminal or in a pipe: the model's words on standard output, all else beside."""

from __future__ import annotations

import sys
from typing import TextIO

from toolyard.cli.chat.tool_cards import call_line, progress_line, result_lines, usage_line
from toolyard.cli.output.messages import note, show_error
from toolyard.cli.output.safe_text import plain
from toolyard.cli.output.terminal import is_terminal, paint
from toolyard.types.chat import Ending, Event, Kind

__all__ = ["Screen"]

_ENDINGS = {
    Ending.STOPPED: "stopped",
    Ending.INTERRUPTED: "interrupted: the program that worked on it is gone",
}


class Screen:
    """Shows events in the order in which they come. Whatever is in them may not move the cursor."""

    def __init__(self) -> None:
        self._drawn = is_terminal(sys.stderr)
        self._line: str = ""
        """What the unfinished line is of: ``text``, ``reasoning``, ``progress``, or nothing."""
        self._shown: dict[tuple[str, Kind], str] = {}
        """By part and kind, the words of the model that are on the screen."""
        self._calls: dict[str, str] = {}
        self._tokens = (0, 0)
        self._cost: float | None = None

    def show(self, event: Event) -> None:
        """Put an event on the screen."""
        body = event.body
        match event.kind:
            case Kind.USER | Kind.RUN:
                self._begin()
            case Kind.TEXT | Kind.REASONING:
                self._words(event.part, event.kind, str(body.get("delta") or ""))
            case Kind.SAID:
                self._said(event)
            case Kind.CALL:
                self._calls[str(body.get("id"))] = str(body.get("name"))
                self._tell(paint(call_line(body), "cyan", sys.stderr))
            case Kind.PROGRESS:
                self._progress(event)
            case Kind.RESULT:
                good, text = result_lines(body)
                self._tell(paint(text, "dim" if good else "red", sys.stderr))
            case Kind.USAGE:
                self._used(event)
            case Kind.NOTE:
                self.end_line()
                note(str(body.get("text") or ""), body.get("hint"))
            case Kind.END:
                self._end(event)
            case _:
                pass

    def show_past(self, event: Event) -> None:
        """The same for what happened before: the person's words too."""
        if event.kind is Kind.USER:
            self._tell(paint(f"> {plain(str(event.body.get('text') or ''))}", "bold", sys.stderr))
        elif event.kind is Kind.RUN:
            self._tell(paint(f"> {call_line(event.body)}", "bold", sys.stderr))
        self.show(event)

    def end_line(self) -> None:
        """Leave an unfinished line, so that something else can be put on the screen."""
        if self._line == "progress":
            _put("\r\x1b[2K", sys.stderr)
        elif self._line:
            _put("\n", sys.stdout if self._line == "text" else sys.stderr)
        self._line = ""

    def _begin(self) -> None:
        self._shown.clear()
        self._tokens, self._cost = (0, 0), None

    def _words(self, part: str, kind: Kind, delta: str) -> None:
        if not delta:
            return
        if self._line != kind.value:
            self.end_line()
        self._line = kind.value
        self._shown[part, kind] = self._shown.get((part, kind), "") + delta
        if kind is Kind.TEXT:
            # On a screen a model's text may not move the cursor; a pipe gets it as it is.
            _put(plain(delta) if is_terminal(sys.stdout) else delta, sys.stdout)
        else:
            _put(paint(plain(delta), "dim", sys.stderr), sys.stderr)

    def _said(self, event: Event) -> None:
        """A whole answer: what of it was not seen in pieces follows."""
        for kind in (Kind.REASONING, Kind.TEXT):
            text, seen = str(event.body.get(kind.value) or ""), self._shown.get((event.part, kind), "")
            if not text.startswith(seen):
                self.end_line()
                seen = ""
            self._words(event.part, kind, text[len(seen) :])
        self.end_line()

    def _used(self, event: Event) -> None:
        read, written, cost = (event.body.get(key) for key in ("input", "output", "cost"))
        self._tokens = (self._tokens[0] + int(read or 0), self._tokens[1] + int(written or 0))
        if cost is not None:
            self._cost = (self._cost or 0.0) + float(cost)

    def _progress(self, event: Event) -> None:
        if not self._drawn:
            return
        if self._line != "progress":
            self.end_line()
        self._line = "progress"
        name = self._calls.get(str(event.body.get("id")), "")
        _put(f"\r\x1b[2K{paint(progress_line(name, event.body), 'dim', sys.stderr)}", sys.stderr)

    def _end(self, event: Event) -> None:
        self.end_line()
        why, error = str(event.body.get("why")), event.body.get("error")
        if error:
            show_error(str(error), event.body.get("hint"))
        elif why in _ENDINGS:
            self._tell(paint(_ENDINGS[Ending(why)], "yellow", sys.stderr))
        if any(self._tokens) and self._drawn:
            seconds = float(event.body.get("seconds") or 0)
            self._tell(paint(usage_line(*self._tokens, self._cost, seconds), "dim", sys.stderr))

    def _tell(self, text: str) -> None:
        self.end_line()
        print(text, file=sys.stderr, flush=True)


def _put(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
