"""``view_file``: some lines of a file, or a picture."""

from __future__ import annotations

import base64
import io
import os
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import Leash
from toolyard.agents.builtin_tools.display_paths import shown
from toolyard.agents.builtin_tools.file_types import HEAD, Kind, kind_of
from toolyard.agents.builtin_tools.tool_error import NativeFailure
from toolyard.agents.builtin_tools.workspace import Opened, Workspace

__all__ = ["Content", "text_block", "view"]

Content = list[dict[str, Any]]
"""The blocks of a result, as they go over the wire."""

_PICTURE = 4 * 1024 * 1024
_LINE = 2000
"""Characters of one line that are shown."""
_READ = 64 * 1024


def text_block(text: str) -> Content:
    """A result that is one text."""
    return [{"type": "text", "text": text}]


def view(workspace: Workspace, path: str, first: int, most: int, room: int, leash: Leash) -> Content:
    """Lines from ``first`` on, numbered, at most ``most`` and in ``room`` characters; a picture as a picture.

    Raises NativeFailure for what is neither.
    """
    with workspace.file(path) as found:
        head = os.pread(found.fd, HEAD, 0)
        kind = kind_of(head)
        if kind.picture is not None:
            return _picture(found, kind)
        if kind.encoding is None:
            size = f"{found.info.st_size:,} bytes"
            raise NativeFailure(
                f"'{shown(found.path)}' is {kind.words} ({size}), which cannot be shown as text"
            )
        return text_block(_lines(found, kind.encoding, first, most, room, leash))


def _picture(found: Opened, kind: Kind) -> Content:
    if found.info.st_size > _PICTURE:
        raise NativeFailure(
            f"'{shown(found.path)}' is {kind.words} of {found.info.st_size:,} bytes, more than the "
            f"{_PICTURE:,} that can be shown"
        )
    with os.fdopen(os.dup(found.fd), "rb") as stream:
        data = stream.read(_PICTURE + 1)[:_PICTURE]
    told = f"{shown(found.path)}: {kind.words}, {len(data):,} bytes"
    image = {"type": "image", "mimeType": kind.picture, "data": base64.b64encode(data).decode("ascii")}
    return [*text_block(told), image]


def _lines(found: Opened, encoding: str, first: int, most: int, room: int, leash: Leash) -> str:
    taken: list[str] = []
    number, left, full = 0, room, False
    with _text(found.fd, encoding) as stream:
        while (line := _line(stream, leash)) is not None:
            number += 1
            if number < first:
                continue
            told = f"{number}\t{line}"
            if len(taken) == most or (taken and len(told) + 1 > left):
                full = True
                break
            taken.append(told[:room])
            left -= len(told) + 1
    where = shown(found.path)
    if not taken:
        if number == 0:
            return f"{where} is empty"
        raise NativeFailure(f"'{where}' has {number:,} lines, so none from {first:,} on")
    last = first + len(taken) - 1
    total = f"more follow: offset {last + 1}" if full else f"of {number:,}"
    return "\n".join((f"{where}, lines {first:,} to {last:,}{' ' if not full else '; '}{total}", *taken))


def _text(fd: int, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedReader(io.FileIO(os.dup(fd), "rb"), _READ), encoding, errors="replace", newline="\n"
    )


def _line(stream: io.TextIOWrapper, leash: Leash) -> str | None:
    """The next line, without its end and not longer than is shown; None where there is none."""
    piece = stream.readline(_READ)
    leash.check()
    if not piece:
        return None
    kept, length = piece[: _LINE + 1], len(piece)
    while not piece.endswith("\n"):
        piece = stream.readline(_READ)
        leash.check()
        length += len(piece)
        if not piece:
            break
    kept = kept.rstrip("\n").removesuffix("\r").replace("\0", "\ufffd")
    return kept if len(kept) <= _LINE else f"{kept[:_LINE]} … ({length:,} characters in this line)"
