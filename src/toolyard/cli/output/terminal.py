"""Properties of the output streams: terminal or pipe, colours."""

from __future__ import annotations

import os
import sys
from typing import TextIO

__all__ = ["has_colour", "is_interactive", "is_terminal", "style_text"]

_ANSI_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # It was closed.
        return False


def has_colour(stream: TextIO | None) -> bool:
    """Return whether to use colours: on a terminal that supports them, without NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_interactive() -> bool:
    """Return whether a person can be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def style_text(text: str, style: str, stream: TextIO | None) -> str:
    """Return ``text`` in a colour, if the stream supports colours."""
    if not text or not has_colour(stream):
        return text
    return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m"
