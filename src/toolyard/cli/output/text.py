"""Texts of others made fit for a screen, and JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["ago", "count", "duration", "one_line", "plain", "print_json", "spelt_out"]


def plain(text: str) -> str:
    """Without what could rewrite the screen: line ends and tabs stay, control characters do not."""
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" or char.isprintable() else _mark(char) for char in text)


def spelt_out(text: str) -> str:
    """The same for what somebody decides on: what cannot be seen is spelt out, and nothing is left out."""
    return "".join(char if char in "\n\t" or _is_seen(char) else _spelt(char) for char in text)


def one_line(text: str, width: int | None = None) -> str:
    """On one line, fit for a screen, cut where it is longer than ``width``."""
    line = plain(" ".join(text.split()))
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def _mark(char: str) -> str:
    """Control characters leave a mark; what is merely invisible leaves nothing."""
    return "\ufffd" if char < " " or "\x7f" <= char < "\xa0" else ""


def _is_seen(char: str) -> bool:
    """What picks the form of the letter before it counts as printable, and can hide words."""
    return char.isprintable() and not "\U000e0100" <= char <= "\U000e01ef"


def _spelt(char: str) -> str:
    return char.encode("unicode_escape").decode()


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
