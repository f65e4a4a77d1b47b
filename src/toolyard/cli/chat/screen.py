"""Prints chat events: the model's text on standard output, everything else on standard error.

A tool call becomes lines for the call, its progress and its result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TextIO

from toolyard.agents.chat.turn_snapshot import AnswerSnapshot, TurnSnapshot, UsageTotal
from toolyard.cli.output.console import (
    format_count,
    format_duration,
    is_terminal,
    make_printable,
    one_line,
    show_error,
    show_note,
    style_text,
)
from toolyard.types.chat import (
    CallProgress,
    CallRequest,
    CallResult,
    ChatEvent,
    Kind,
    ManualCall,
    ModelMessage,
    Note,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnOutcome,
    UserMessage,
)
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


def call_line(call: CallRequest) -> str:
    """Return the line for a call: tool, server and arguments. Built-in tools have another mark than those of
    servers."""
    sign = "◇" if call.native else "●"
    server = one_line(call.server, 40)
    where = f" ({server})" if server and not call.native else ""
    arguments = arguments_text(call.arguments, _MAX_ARGUMENT_CHARACTERS)
    return f"{sign} {one_line(call.name, 80)}{where} {arguments}".rstrip()


def arguments_text(arguments: JsonObject | str, width: int | None = None) -> str:
    """Return the arguments of a call, as the model wrote them if they are not valid JSON."""
    if isinstance(arguments, str):
        return one_line(arguments, width)
    if not arguments:
        return ""
    return one_line(json.dumps(arguments, ensure_ascii=False, default=str), width)


def progress_line(name: str, progress: CallProgress) -> str:
    """Return the line for the progress of a call."""
    total = "" if progress.total is None else f" of {progress.total:g}"
    words = f"  {one_line(progress.message, 60)}" if progress.message else ""
    return f"{_INDENT}… {one_line(name, 60)} {progress.progress:g}{total}{words}"


def result_lines(result: CallResult) -> str:
    """Return the text for a result: the beginning of it, or the whole error."""
    took = format_duration(result.seconds)
    text = make_printable(result.text)
    media = ", ".join(f"[{one_line(each.mime, 60)}, {each.size:,} bytes]" for each in result.media)
    if result.ok:
        shown = one_line(text, _MAX_RESULT_CHARACTERS)
        return "  ".join([f"{_INDENT}✓ {took}", *(part for part in (shown, media) if part)])
    cause = make_printable(result.cause or "")
    told = "\n".join(part for part in (cause, text if text != cause else "", media) if part)
    lines = told.split("\n") if told else ["it failed"]
    hint = ["sign in to it again in the web app, or with `toolyard login`"] if result.reconnect else []
    return "\n".join([f"{_INDENT}✗ {took}", *(f"{_INDENT}{_INDENT}{line}" for line in [*lines, *hint])])


def usage_line(usage: UsageTotal, seconds: float) -> str:
    """Return the line with tokens, cost and duration of a turn."""
    spent = f", ${usage.cost:.4f}" if usage.cost else ""
    tokens = f"{format_count(usage.input, 'token')} in, {usage.output:,} out"
    return f"{tokens}{spent}, {format_duration(seconds)}"


_OUTCOME_MESSAGES: Mapping[str, str] = {
    TurnOutcome.STOPPED: "stopped",
    TurnOutcome.INTERRUPTED: "interrupted: the process that ran it has ended",
}


class Screen:
    """Prints events in their order. Control characters in them are escaped."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stderr)
        self._open_line_kind: str = ""
        """Kind of the unfinished line: ``text``, ``reasoning``, ``progress``, or empty."""
        self._turn = TurnSnapshot()
        """The turn as it was printed."""

    def show(self, event: ChatEvent) -> None:
        """Print an event."""
        before = self._turn if event.turn == self._turn.seq else TurnSnapshot(event.turn)
        self._turn = turn = before.apply([event])
        match event.data:
            case TextDelta(delta):
                self._show_text(Kind.TEXT, delta)
            case ReasoningDelta(delta):
                self._show_text(Kind.REASONING, delta)
            case ModelMessage() as message:
                self._show_model_message(before.find_answer(event.part), message)
            case CallRequest() as call:
                self._print_line(style_text(call_line(call), "cyan", sys.stderr))
            case CallProgress() as progress:
                self._show_progress(progress)
            case CallResult() as result:
                colour = "dim" if result.ok else "red"
                self._print_line(style_text(result_lines(result), colour, sys.stderr))
            case Note(text, hint):
                self.end_line()
                show_note(text, hint)
            case TurnEnd() as end:
                self._show_end(end, turn.usage)
            case _:
                pass

    def show_past(self, event: ChatEvent) -> None:
        """Print a past event, including the user's messages."""
        match event.data:
            case UserMessage(text, attachments=attachments):
                self._print_line(style_text(f"> {make_printable(text)}", "bold", sys.stderr))
                for each in attachments:
                    self._print_line(style_text(f"  attached: {one_line(each.name)}", "dim", sys.stderr))
            case ManualCall(name, arguments):
                line = call_line(CallRequest(name=name, arguments=arguments))
                self._print_line(style_text(f"> {line}", "bold", sys.stderr))
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

    def _show_text(self, kind: Kind, delta: str) -> None:
        if not delta:
            return
        if self._open_line_kind != kind.value:
            self.end_line()
        self._open_line_kind = kind.value
        if kind is Kind.TEXT:
            # On a terminal, control characters of the model's text are escaped; a pipe gets it unchanged.
            _write_text(make_printable(delta) if is_terminal(sys.stdout) else delta, sys.stdout)
        else:
            _write_text(style_text(make_printable(delta), "dim", sys.stderr), sys.stderr)

    def _show_model_message(self, streamed: AnswerSnapshot | None, message: ModelMessage) -> None:
        """Print the part of a complete answer that was not streamed."""
        seen = streamed or AnswerSnapshot("")
        self._show_rest(Kind.REASONING, seen.reasoning, message.reasoning)
        self._show_rest(Kind.TEXT, seen.text, message.text)
        self.end_line()

    def _show_rest(self, kind: Kind, seen: str, text: str) -> None:
        if not text.startswith(seen):
            self.end_line()
            seen = ""
        self._show_text(kind, text[len(seen) :])

    def _show_progress(self, progress: CallProgress) -> None:
        if not self._is_terminal:
            return
        if self._open_line_kind != "progress":
            self.end_line()
        self._open_line_kind = "progress"
        names = (call.request.name for call in self._turn.calls if call.request.id == progress.id)
        line = progress_line(next(names, ""), progress)
        _write_text(f"\r\x1b[2K{style_text(line, 'dim', sys.stderr)}", sys.stderr)

    def _show_end(self, end: TurnEnd, usage: UsageTotal) -> None:
        self.end_line()
        if end.error:
            show_error(end.error, end.hint)
        elif end.why in _OUTCOME_MESSAGES:
            self._print_line(style_text(_OUTCOME_MESSAGES[end.why], "yellow", sys.stderr))
        if usage.tokens and self._is_terminal:
            self._print_line(style_text(usage_line(usage, end.seconds), "dim", sys.stderr))

    def _print_line(self, text: str) -> None:
        self.end_line()
        print(text, file=sys.stderr, flush=True)


def _write_text(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
