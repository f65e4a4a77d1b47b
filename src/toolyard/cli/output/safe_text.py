"""Escaping of foreign text for terminals, and JSON output."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from toolyard.types.visible_text import hidden_characters, visible

__all__ = ["format_age", "format_count", "format_duration", "make_printable", "one_line", "print_json"]

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def make_printable(text: str) -> str:
    """Replace control characters, which could rewrite the screen, and show other hidden characters."""
    return text if text.isascii() and text.isprintable() else visible(_CONTROL_CHARACTERS.sub("\ufffd", text))


def one_line(text: str, width: int | None = None) -> str:
    """Return a text on one line, escaped, and truncated to ``width``."""
    line = make_printable(" ".join(text.split()))
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return ``1 tool`` or ``2 tools``."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_duration(seconds: float) -> str:
    """Format a duration."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_age(seconds: float) -> str:
    """Format an age, roughly as people say it."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{format_count(int(seconds // size), unit)} ago"
    return f"{format_count(int(seconds), 'second')} ago"


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, with hidden characters escaped as JSON escapes them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=_to_jsonable)
    sys.stdout.write(hidden_characters().sub(_escape_for_json, text) + "\n")


def _escape_for_json(match: re.Match[str]) -> str:
    # JSON escapes characters beyond the 16-bit range as two surrogates.
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _to_jsonable(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    keys = getattr(value, "keys", None)
    return {key: value[key] for key in keys()} if keys is not None else str(value)
