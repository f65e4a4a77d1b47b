"""Display files to a model: their names on one line and in valid Unicode, in a form that later calls accept,
and a limited number of lines."""

from __future__ import annotations

import os
import re

__all__ = ["LinePage", "candidate_paths", "escape_path"]

_UNSAFE_CHARACTER_PATTERN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ESCAPE_PATTERN = re.compile(rb"\\x([0-9a-f]{2})")


class LinePage:
    """Collects the lines of a result up to a number of lines and characters."""

    def __init__(self, max_lines: int, max_characters: int) -> None:
        self.lines: list[str] = []
        self.is_full = False
        self._max_lines = max_lines
        self._characters_left = max_characters

    def add(self, line: str) -> bool:
        """Add a line. Return False if it does not fit; nothing more is added after that."""
        self._characters_left -= len(line) + 1
        self.is_full |= len(self.lines) >= self._max_lines or self._characters_left < 0
        if not self.is_full:
            self.lines.append(line)
        return not self.is_full


def escape_path(name: str) -> str:
    """Return a file name or path with ``\\x0a`` escapes for bytes that cannot be displayed safely.

    These are control characters, line separators, characters that change the writing direction, and bytes
    that are not valid Unicode.
    """
    return _UNSAFE_CHARACTER_PATTERN.sub(
        lambda match: "".join(f"\\x{byte:02x}" for byte in _encode_name(match[0])), name
    )


def candidate_paths(path: str) -> tuple[str, ...]:
    """Return the paths that a model may mean: the text as it is, and with escapes decoded."""
    if "\\x" not in path:
        return (path,)
    try:
        decoded = os.fsdecode(
            _ESCAPE_PATTERN.sub(lambda match: bytes([int(match[1], 16)]), os.fsencode(path))
        )
    except UnicodeError:
        return (path,)
    return (path, decoded) if decoded != path else (path,)


def _encode_name(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
