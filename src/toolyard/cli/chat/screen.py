"""Prints chat events: the model's text on standard output, everything else on standard error.

A tool call becomes lines for the call, its progress and its result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

from toolyard.cli.output.messages import show_error, show_note
from toolyard.cli.output.safe_text import format_count, format_duration, make_printable, one_line
from toolyard.cli.output.terminal import is_terminal, style_text
from toolyard.types.chat import ChatEvent, Kind, TurnOutcome

__all__ = [
    "EventBody",
    "Screen",
    "arguments_text",
    "call_line",
    "progress_line",
    "result_lines",
    "usage_line",
]


EventBody = Mapping[str, Any]

_MAX_ARGUMENT_CHARACTERS = 200
_MAX_RESULT_CHARACTERS = 300
_INDENT = "  "


def call_line(body: EventBody) -> str:
    """Return the line for a call: tool, server and arguments. Built-in tools have another mark than those of
    servers."""
    sign = "◇" if body.get("native") else "●"
    server = one_line(str(body.get("server") or ""), 40)
    where = f" ({server})" if server and not body.get("native") else ""
    return (
        f"{sign} {one_line(str(body.get('name')), 80)}{where} "
        f"{arguments_text(body, _MAX_ARGUMENT_CHARACTERS)}"
    ).rstrip()


def arguments_text(body: EventBody, width: int | None = None) -> str:
    """Return the arguments of a call, as the model wrote them if they are not valid JSON."""
    arguments: Any = body.get("arguments")
    if isinstance(arguments, str):
        return one_line(arguments, width)
    if not arguments:
        return ""
    return one_line(json.dumps(arguments, ensure_ascii=False, default=str), width)


def progress_line(name: str, body: EventBody) -> str:
    """Return the line for the progress of a call."""
    done, total = _number_or_none(body.get("progress")), _number_or_none(body.get("total"))
    share = "" if done is None else f" {done:g}" if total is None else f" {done:g} of {total:g}"
    message = body.get("message")
    words = f"  {one_line(message, 60)}" if isinstance(message, str) and message else ""
    return f"{_INDENT}… {one_line(name, 60)}{share}{words}"


def result_lines(body: EventBody) -> tuple[bool, str]:
    """Return whether the call succeeded, and its text: the beginning of a result, or the whole error."""
    took = format_duration(float(body.get("seconds") or 0))
    text = make_printable(str(body.get("text") or ""))
    media = _format_media(body)
    if body.get("ok"):
        shown = one_line(text, _MAX_RESULT_CHARACTERS)
        parts = [f"{_INDENT}✓ {took}", *(part for part in (shown, media) if part)]
        return True, "  ".join(parts)
    cause = make_printable(str(body.get("cause") or ""))
    told = "\n".join(part for part in (cause, text if text != cause else "", media) if part)
    lines = told.split("\n") if told else ["it failed"]
    hint = ["sign in to it again in the web app, or with `toolyard login`"] if body.get("reconnect") else []
    return False, "\n".join(
        [f"{_INDENT}✗ {took}", *(f"{_INDENT}{_INDENT}{line}" for line in [*lines, *hint])]
    )


def usage_line(tokens_in: int, tokens_out: int, cost: float | None, seconds: float) -> str:
    """Return the line with tokens, cost and duration of a turn."""
    spent = f", ${cost:.4f}" if cost else ""
    return f"{format_count(tokens_in, 'token')} in, {tokens_out:,} out{spent}, {format_duration(seconds)}"


def _format_media(body: EventBody) -> str:
    found = cast("list[EventBody]", body.get("media") or [])
    return ", ".join(_format_media_item(one) for one in found)


def _format_media_item(one: EventBody) -> str:
    return f"[{one_line(str(one['mime']), 60)}, {one['size']:,} bytes]"


def _number_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_OUTCOME_MESSAGES = {
    TurnOutcome.STOPPED: "stopped",
    TurnOutcome.INTERRUPTED: "interrupted: the process that ran it has ended",
}


class Screen:
    """Prints events in their order. Control characters in them are escaped."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stderr)
        self._open_line_kind: str = ""
        """Kind of the unfinished line: ``text``, ``reasoning``, ``progress``, or empty."""
        self._shown_text: dict[tuple[str, Kind], str] = {}
        """Text of the model that has been printed, by part and kind."""
        self._call_names: dict[str, str] = {}
        self._tokens = (0, 0)
        self._cost: float | None = None

    def show(self, event: ChatEvent) -> None:
        """Print an event."""
        body = event.body
        match event.kind:
            case Kind.USER | Kind.RUN:
                self._reset_turn()
            case Kind.TEXT | Kind.REASONING:
                self._show_text(event.part, event.kind, str(body.get("delta") or ""))
            case Kind.MODEL_MESSAGE:
                self._show_model_message(event)
            case Kind.CALL:
                self._call_names[str(body.get("id"))] = str(body.get("name"))
                self._print_line(style_text(call_line(body), "cyan", sys.stderr))
            case Kind.PROGRESS:
                self._show_progress(event)
            case Kind.RESULT:
                good, text = result_lines(body)
                self._print_line(style_text(text, "dim" if good else "red", sys.stderr))
            case Kind.USAGE:
                self._add_usage(event)
            case Kind.NOTE:
                self.end_line()
                show_note(str(body.get("text") or ""), body.get("hint"))
            case Kind.END:
                self._show_end(event)
            case _:
                pass

    def show_past(self, event: ChatEvent) -> None:
        """Print a past event, including the user's messages."""
        if event.kind is Kind.USER:
            self._print_line(
                style_text(f"> {make_printable(str(event.body.get('text') or ''))}", "bold", sys.stderr)
            )
        elif event.kind is Kind.RUN:
            self._print_line(style_text(f"> {call_line(event.body)}", "bold", sys.stderr))
        self.show(event)

    def end_line(self) -> None:
        """End an unfinished line, so that other output can follow."""
        if self._open_line_kind == "progress":
            _write_text("\r\x1b[2K", sys.stderr)
        elif self._open_line_kind:
            _write_text("\n", sys.stdout if self._open_line_kind == "text" else sys.stderr)
        self._open_line_kind = ""

    def _reset_turn(self) -> None:
        self._shown_text.clear()
        self._tokens, self._cost = (0, 0), None

    def _show_text(self, part: str, kind: Kind, delta: str) -> None:
        if not delta:
            return
        if self._open_line_kind != kind.value:
            self.end_line()
        self._open_line_kind = kind.value
        self._shown_text[part, kind] = self._shown_text.get((part, kind), "") + delta
        if kind is Kind.TEXT:
            # On a terminal, control characters of the model's text are escaped; a pipe gets it unchanged.
            _write_text(make_printable(delta) if is_terminal(sys.stdout) else delta, sys.stdout)
        else:
            _write_text(style_text(make_printable(delta), "dim", sys.stderr), sys.stderr)

    def _show_model_message(self, event: ChatEvent) -> None:
        """Print the part of a complete answer that was not streamed."""
        for kind in (Kind.REASONING, Kind.TEXT):
            text, seen = str(event.body.get(kind.value) or ""), self._shown_text.get((event.part, kind), "")
            if not text.startswith(seen):
                self.end_line()
                seen = ""
            self._show_text(event.part, kind, text[len(seen) :])
        self.end_line()

    def _add_usage(self, event: ChatEvent) -> None:
        read, written, cost = (event.body.get(key) for key in ("input", "output", "cost"))
        self._tokens = (self._tokens[0] + int(read or 0), self._tokens[1] + int(written or 0))
        if cost is not None:
            self._cost = (self._cost or 0.0) + float(cost)

    def _show_progress(self, event: ChatEvent) -> None:
        if not self._is_terminal:
            return
        if self._open_line_kind != "progress":
            self.end_line()
        self._open_line_kind = "progress"
        name = self._call_names.get(str(event.body.get("id")), "")
        _write_text(f"\r\x1b[2K{style_text(progress_line(name, event.body), 'dim', sys.stderr)}", sys.stderr)

    def _show_end(self, event: ChatEvent) -> None:
        self.end_line()
        why, error = str(event.body.get("why")), event.body.get("error")
        if error:
            show_error(str(error), event.body.get("hint"))
        elif why in _OUTCOME_MESSAGES:
            self._print_line(style_text(_OUTCOME_MESSAGES[TurnOutcome(why)], "yellow", sys.stderr))
        if any(self._tokens) and self._is_terminal:
            seconds = float(event.body.get("seconds") or 0)
            self._print_line(style_text(usage_line(*self._tokens, self._cost, seconds), "dim", sys.stderr))

    def _print_line(self, text: str) -> None:
        self.end_line()
        print(text, file=sys.stderr, flush=True)


def _write_text(text: str, stream: TextIO) -> None:
    stream.write(text)
    stream.flush()
