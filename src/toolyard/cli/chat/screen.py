"""Prints chat events: the model's text on standard output, everything else on standard error.

A tool call becomes lines for the call, its progress and its result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TextIO

from toolyard.agents.chat.turn_snapshot import AnswerSnapshot, TurnSnapshot, UsageTotal
from toolyard.cli.output import console
from toolyard.types import chat as events
from toolyard.types.tool import JsonObject

__all__ = [
    "Screen",
    "arguments_text",
    "call_line",
    "progress_line",
    "result_lines",
    "usage_line",
]


_MAX_ARGUMENT_CHARACTERS = 200
_MAX_RESULT_CHARACTERS = 300
_INDENT = "  "


def call_line(call: events.CallRequest) -> str:
    """Return the line for a call: tool, server and arguments. Built-in tools have another mark than those of
    servers."""
    sign = "◇" if call.native else "●"
    server = console.one_line(call.server, 40)
    where = f" ({server})" if server and not call.native else ""
    arguments = arguments_text(call.arguments, _MAX_ARGUMENT_CHARACTERS)
    return f"{sign} {console.one_line(call.name, 80)}{where} {arguments}".rstrip()


def arguments_text(arguments: JsonObject | str, width: int | None = None) -> str:
    """Return the arguments of a call, as the model wrote them if they are not valid JSON."""
    if isinstance(arguments, str):
        return console.one_line(arguments, width)
    if not arguments:
        return ""
    return console.one_line(json.dumps(arguments, ensure_ascii=False, default=str), width)


def progress_line(name: str, progress: events.CallProgress) -> str:
    """Return the line for the progress of a call."""
    total = "" if progress.total is None else f" of {progress.total:g}"
    words = f"  {console.one_line(progress.message, 60)}" if progress.message else ""
    return f"{_INDENT}… {console.one_line(name, 60)} {progress.progress:g}{total}{words}"


def result_lines(result: events.CallResult) -> str:
    """Return the text for a result: the beginning of it, or the whole error."""
    if result.stopped:
        return f"{_INDENT}■ {console.make_printable(result.text)}"
    took = console.format_duration(result.seconds)
    text = console.make_printable(result.text)
    media = ", ".join(f"[{console.one_line(each.mime, 60)}, {each.size:,} bytes]" for each in result.media)
    if result.ok:
        shown = console.one_line(text, _MAX_RESULT_CHARACTERS)
        return "  ".join([f"{_INDENT}✓ {took}", *(part for part in (shown, media) if part)])
    cause = console.make_printable(result.cause or "")
    told = "\n".join(part for part in (cause, text if text != cause else "", media) if part)
    lines = told.split("\n") if told else ["it failed"]
    hint = ["sign in to it again in the web app, or with `toolyard login`"] if result.reconnect else []
    return "\n".join([f"{_INDENT}✗ {took}", *(f"{_INDENT}{_INDENT}{line}" for line in [*lines, *hint])])


def usage_line(usage: UsageTotal, seconds: float) -> str:
    """Return the line with tokens, cost and duration of a turn."""
    spent = f", ${usage.cost:.4f}" if usage.cost else ""
    tokens = f"{console.format_count(usage.input, 'token')} in, {usage.output:,} out"
    return f"{tokens}{spent}, {console.format_duration(seconds)}"


_OUTCOME_MESSAGES: Mapping[str, str] = {
    events.TurnOutcome.STOPPED: "stopped",
    events.TurnOutcome.INTERRUPTED: "interrupted: the process that ran it has ended",
}


class Screen:
    """Prints events in their order. Control characters in them are escaped."""

    def __init__(self) -> None:
        self._is_terminal = console.is_terminal(sys.stderr)
        self._open_line_kind: str = ""
        """Kind of the unfinished line: ``text``, ``reasoning``, ``progress``, or empty."""
        self._turn = TurnSnapshot()
        """The turn as it was printed."""

    def show(self, event: events.ChatEvent) -> None:
        """Print an event."""
        before = self._turn if event.turn == self._turn.seq else TurnSnapshot(event.turn)
        self._turn = turn = before.apply([event])
        match event.data:
            case events.TextDelta(delta):
                self._show_text(events.Kind.TEXT, delta)
            case events.ReasoningDelta(delta):
                self._show_text(events.Kind.REASONING, delta)
            case events.ModelMessage() as message:
                self._show_model_message(before.find_answer(event.part), message)
            case events.CallRequest() as call:
                self._print_line(console.style_text(call_line(call), "cyan", sys.stderr))
            case events.CallProgress() as progress:
                self._show_progress(progress)
            case events.CallResult() as result:
                colour = "dim" if result.ok or result.stopped else "red"
                self._print_line(console.style_text(result_lines(result), colour, sys.stderr))
            case events.Note(text, hint):
                self.end_line()
                console.show_note(text, hint)
            case events.TurnEnd() as end:
                self._show_end(end, turn.usage)
            case _:
                pass

    def show_past(self, event: events.ChatEvent) -> None:
        """Print a past event, including the user's messages."""
        match event.data:
            case events.UserMessage(text, attachments=attachments):
                self._print_line(console.style_text(f"> {console.make_printable(text)}", "bold", sys.stderr))
                for each in attachments:
                    self._print_line(
                        console.style_text(f"  attached: {console.one_line(each.name)}", "dim", sys.stderr)
                    )
            case events.ManualCall(name, arguments):
                line = call_line(events.CallRequest(name=name, arguments=arguments))
                self._print_line(console.style_text(f"> {line}", "bold", sys.stderr))
            case _:
                pass
        self.show(event)

    def end_line(self) -> None:
        """End an unfinished line, so that other output can follow."""
        if self._open_line_kind == "progress":
            _write_text("\r\x1b[2K", sys.stderr)
        elif self._open_line_kind:
            _write_text("\n", sys.stdout if self._open_line_kind == "text" else sys.stderr)
        self._open_line_kind = ""

    def _show_text(self, kind: events.Kind, delta: str) -> None:
        if not delta:
            return
        if self._open_line_kind != kind.value:
            self.end_line()
        self._open_line_kind = kind.value
        if kind is events.Kind.TEXT:
            # On a terminal, control characters of the model's text are escaped; a pipe gets it unchanged.
            _write_text(
                console.make_printable(delta) if console.is_terminal(sys.stdout) else delta, sys.stdout
            )
        else:
            _write_text(console.style_text(console.make_printable(delta), "dim", sys.stderr), sys.stderr)

    def _show_model_message(self, streamed: AnswerSnapshot | None, message: events.ModelMessage) -> None:
        """Print the part of a complete answer that was not streamed."""
        seen = streamed or AnswerSnapshot("")
        self._show_rest(events.Kind.REASONING, seen.reasoning, message.reasoning)
        self._show_rest(events.Kind.TEXT, seen.text, message.text)
        self.end_line()

    def _show_rest(self, kind: events.Kind, seen: str, text: str) -> None:
        if not text.startswith(seen):
            self.end_line()
            seen = ""
        self._show_text(kind, text[len(seen) :])

    def _show_progress(self, progress: events.CallProgress) -> None:
        if not self._is_terminal:
            return
        if self._open_line_kind != "progress":
            self.end_line()
        self._open_line_kind = "progress"
        names = (call.request.name for call in self._turn.calls if call.request.id == progress.id)
        line = progress_line(next(names, ""), progress)
        _write_text(f"\r\x1b[2K{console.style_text(line, 'dim', sys.stderr)}", sys.stderr)

    def _show_end(self, end: events.TurnEnd, usage: UsageTotal) -> None:
        self.end_line()
        if end.error:
            console.show_error(end.error, end.hint)
        elif end.why in _OUTCOME_MESSAGES:
            self._print_line(console.style_text(_OUTCOME_MESSAGES[end.why], "yellow", sys.stderr))
        if usage.tokens and self._is_terminal:
            self._print_line(console.style_text(usage_line(usage, end.seconds), "dim", sys.stderr))

    def _print_line(self, text: str) -> None:
        self.end_line()
        console.print_to_stderr(text)


def _write_text(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
