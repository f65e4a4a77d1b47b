"""Texts of others made fit for a screen, and JSON."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from toolyard.types.visible_text import visible

__all__ = ["ago", "count", "duration", "one_line", "plain", "print_json"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Replace control characters, which could rewrite the screen, and show other hidden characters."""
    return text if text.isascii() and text.isprintable() else visible(_CONTROL.sub("\ufffd", text))


def one_line(text: str, width: int | None = None) -> str:
    """On one line, fit for a screen, cut where it is longer than ``width``."""
    line = plain(" ".join(text.split()))
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 tool``, ``2 tools``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """How long something took."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def ago(seconds: float) -> str:
    """How long ago something was, as roughly as people say it."""
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count(int(seconds // size), unit)} ago"
    return f"{count(int(seconds), 'second')} ago"


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_jsonable) + "\n")


def _jsonable(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    keys = getattr(value, "keys", None)
    return {key: value[key] for key in keys()} if keys is not None else str(value)
