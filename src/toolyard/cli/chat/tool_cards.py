"""Lines for tool calls: the call, its progress and its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolyard.cli.output.safe_text import format_count, format_duration, make_printable, one_line

__all__ = ["EventBody", "arguments_text", "call_line", "progress_line", "result_lines", "usage_line"]

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
