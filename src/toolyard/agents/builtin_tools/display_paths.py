"""Names of files as a model sees them: in one line, in Unicode, and still good for the next call."""

from __future__ import annotations

import os
import re

__all__ = ["candidate_paths", "escape_path"]

_UNSAFE_CHARACTER_PATTERN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_ESCAPE_PATTERN = re.compile(rb"\\x([0-9a-f]{2})")


def escape_path(name: str) -> str:
    """A name or path of the file system, with ``\\x0a`` for bytes that would break a line, turn the writing
    around, or are no Unicode."""
    return _UNSAFE_CHARACTER_PATTERN.sub(
        lambda odd: "".join(f"\\x{byte:02x}" for byte in _encode_name(odd[0])), name
    )


def candidate_paths(path: str) -> tuple[str, ...]:
    """The paths that may be meant by what a model wrote: as it stands, and with such escapes read back."""
    if "\\x" not in path:
        return (path,)
    try:
        read = os.fsdecode(_ESCAPE_PATTERN.sub(lambda found: bytes([int(found[1], 16)]), os.fsencode(path)))
    except UnicodeError:
        return (path,)
    return (path, read) if read != path else (path,)


def _encode_name(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
