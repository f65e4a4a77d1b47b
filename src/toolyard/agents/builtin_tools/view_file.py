"""``view_file``: some lines of a file, or a picture."""

from __future__ import annotations

import base64
import io
import os
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.display_paths import escape_path
from toolyard.agents.builtin_tools.file_types import HEAD_BYTES, FileType, detect_file_type
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import OpenedPath, Workspace

__all__ = ["ContentBlocks", "text_block", "view_file"]

ContentBlocks = list[dict[str, Any]]
"""The blocks of a result, as they go over the wire."""

_MAX_IMAGE_BYTES = 4 * 1024 * 1024
_MAX_LINE_CHARACTERS = 2000
"""Characters of one line that are shown."""
_READ_CHUNK_SIZE = 64 * 1024


def text_block(text: str) -> ContentBlocks:
    """A result that is one text."""
    return [{"type": "text", "text": text}]


def view_file(
    workspace: Workspace,
    path: str,
    first_line: int,
    max_lines: int,
    max_characters: int,
    cancellation: CancellationToken,
) -> ContentBlocks:
    """Lines from ``first`` on, numbered, at most ``most`` and in ``room`` characters; a picture as a picture.

    Raises NativeFailure for what is neither.
    """
    with workspace.file(path) as found:
        head = os.pread(found.fd, HEAD_BYTES, 0)
        kind = detect_file_type(head)
        if kind.image_mime_type is not None:
            return _image_content(found, kind)
        if kind.encoding is None:
            size = f"{found.stat_result.st_size:,} bytes"
            raise NativeToolError(
                f"'{escape_path(found.path)}' is {kind.words} ({size}), which cannot be shown as text"
            )
        return text_block(
            _format_lines(found, kind.encoding, first_line, max_lines, max_characters, cancellation)
        )


def _image_content(file: OpenedPath, file_type: FileType) -> ContentBlocks:
    if file.stat_result.st_size > _MAX_IMAGE_BYTES:
        raise NativeToolError(
            f"'{escape_path(file.path)}' is {file_type.words} of {file.stat_result.st_size:,} "
            "bytes, more than the "
            f"{_MAX_IMAGE_BYTES:,} that can be shown"
        )
    with os.fdopen(os.dup(file.fd), "rb") as stream:
        data = stream.read(_MAX_IMAGE_BYTES + 1)[:_MAX_IMAGE_BYTES]
    told = f"{escape_path(file.path)}: {file_type.words}, {len(data):,} bytes"
    image = {
        "type": "image",
        "mimeType": file_type.image_mime_type,
        "data": base64.b64encode(data).decode("ascii"),
    }
    return [*text_block(told), image]


def _format_lines(
    file: OpenedPath,
    encoding: str,
    first_line: int,
    max_lines: int,
    max_characters: int,
    cancellation: CancellationToken,
) -> str:
    taken: list[str] = []
    number, left, full = 0, max_characters, False
    with _open_text(file.fd, encoding) as stream:
        while (line := _read_line(stream, cancellation)) is not None:
            number += 1
            if number < first_line:
                continue
            told = f"{number}\t{line}"
            if len(taken) == max_lines or (taken and len(told) + 1 > left):
                full = True
                break
            taken.append(told[:max_characters])
            left -= len(told) + 1
    where = escape_path(file.path)
    if not taken:
        if number == 0:
            return f"{where} is empty"
        raise NativeToolError(f"'{where}' has {number:,} lines, so none from {first_line:,} on")
    last = first_line + len(taken) - 1
    total = f"more follow: offset {last + 1}" if full else f"of {number:,}"
    return "\n".join((f"{where}, lines {first_line:,} to {last:,}{' ' if not full else '; '}{total}", *taken))


def _open_text(fd: int, encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedReader(io.FileIO(os.dup(fd), "rb"), _READ_CHUNK_SIZE),
        encoding,
        errors="replace",
        newline="\n",
    )


def _read_line(stream: io.TextIOWrapper, cancellation: CancellationToken) -> str | None:
    """The next line, without its end and not longer than is shown; None where there is none."""
    piece = stream.readline(_READ_CHUNK_SIZE)
    cancellation.check()
    if not piece:
        return None
    kept, length = piece[: _MAX_LINE_CHARACTERS + 1], len(piece)
    while not piece.endswith("\n"):
        piece = stream.readline(_READ_CHUNK_SIZE)
        cancellation.check()
        length += len(piece)
        if not piece:
            break
    kept = kept.rstrip("\n").removesuffix("\r").replace("\0", "\ufffd")
    return (
        kept
        if len(kept) <= _MAX_LINE_CHARACTERS
        else f"{kept[:_MAX_LINE_CHARACTERS]} … ({length:,} characters in this line)"
    )
