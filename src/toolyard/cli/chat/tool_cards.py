"""What a chat shows beside the words of the model: a tool that is called, how far it is, what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from toolyard.cli.output.safe_text import count, duration, one_line, plain

__all__ = ["Body", "arguments_text", "call_line", "progress_line", "result_lines", "usage_line"]

Body = Mapping[str, Any]

_ARGUMENTS = 200
_LONGEST_CARD = 300
_INDENT = "  "


def call_line(body: Body) -> str:
    """Which tool of which server, and with what. Our own tools have another sign than those of servers."""
    sign = "◇" if body.get("native") else "●"
    server = one_line(str(body.get("server") or ""), 40)
    where = f" ({server})" if server and not body.get("native") else ""
    return f"{sign} {one_line(str(body.get('name')), 80)}{where} {arguments_text(body, _ARGUMENTS)}".rstrip()


def arguments_text(body: Body, width: int | None = None) -> str:
    """The arguments of a call; as the model wrote them where they are no JSON."""
    arguments: Any = body.get("arguments")
    if isinstance(arguments, str):
        return one_line(arguments, width)
    if not arguments:
        return ""
    return one_line(json.dumps(arguments, ensure_ascii=False, default=str), width)


def progress_line(name: str, body: Body) -> str:
    """How far a call is, as its server tells it."""
    done, total = _number(body.get("progress")), _number(body.get("total"))
    share = "" if done is None else f" {done:g}" if total is None else f" {done:g} of {total:g}"
    message = body.get("message")
    words = f"  {one_line(message, 60)}" if isinstance(message, str) and message else ""
    return f"{_INDENT}… {one_line(name, 60)}{share}{words}"


def result_lines(body: Body) -> tuple[bool, str]:
    """Whether it went well, and what came: of a success the beginning, of an error all of it."""
    took = duration(float(body.get("seconds") or 0))
    text = plain(str(body.get("text") or ""))
    media = _media(body)
    if body.get("ok"):
        shown = one_line(text, _LONGEST_CARD)
        parts = [f"{_INDENT}✓ {took}", *(part for part in (shown, media) if part)]
        return True, "  ".join(parts)
    cause = plain(str(body.get("cause") or ""))
    told = "\n".join(part for part in (cause, text if text != cause else "", media) if part)
    lines = told.split("\n") if told else ["it failed"]
    hint = ["sign in to it again in the web app, or with `toolyard login`"] if body.get("reconnect") else []
    return False, "\n".join(
        [f"{_INDENT}✗ {took}", *(f"{_INDENT}{_INDENT}{line}" for line in [*lines, *hint])]
    )


def usage_line(tokens_in: int, tokens_out: int, cost: float | None, seconds: float) -> str:
    """What a turn took."""
    spent = f", ${cost:.4f}" if cost else ""
    return f"{count(tokens_in, 'token')} in, {tokens_out:,} out{spent}, {duration(seconds)}"


def _media(body: Body) -> str:
    found = cast("list[Body]", body.get("media") or [])
    return ", ".join(_medium(one) for one in found)


def _medium(one: Body) -> str:
    return f"[{one_line(str(one['mime']), 60)}, {one['size']:,} bytes]"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
