"""``view_file``: return lines of a text file, or an image. Its first bytes tell a file's type."""

from __future__ import annotations

import base64
import codecs
import io
import os
from dataclasses import dataclass
from typing import Any

from toolyard.agents.builtin_tools.bounded_thread import CancellationToken
from toolyard.agents.builtin_tools.display_paths import escape_path
from toolyard.agents.builtin_tools.tool_error import NativeToolError
from toolyard.agents.builtin_tools.workspace import OpenedPath, Workspace

__all__ = ["HEAD_BYTES", "ContentBlocks", "FileType", "detect_file_type", "text_block", "view_file"]


HEAD_BYTES = 8192
"""Number of bytes needed for detection."""


@dataclass(frozen=True, slots=True)
class FileType:
    """A file type. ``image_mime_type`` is set for images that models accept, ``encoding`` for text."""

    words: str
    image_mime_type: str | None = None
    encoding: str | None = None


_TEXT_BOMS = (
    (codecs.BOM_UTF8, FileType("text", encoding="utf-8-sig")),
    # Before UTF-16, whose mark is the beginning of this one.
    (codecs.BOM_UTF32_LE, FileType("text", encoding="utf-32")),
    (codecs.BOM_UTF32_BE, FileType("text", encoding="utf-32")),
    (codecs.BOM_UTF16_LE, FileType("text", encoding="utf-16")),
    (codecs.BOM_UTF16_BE, FileType("text", encoding="utf-16")),
)
_MAGIC_NUMBERS = (
    (b"\x89PNG\r\n\x1a\n", FileType("a PNG image", "image/png")),
    (b"\xff\xd8\xff", FileType("a JPEG image", "image/jpeg")),
    (b"GIF87a", FileType("a GIF image", "image/gif")),
    (b"GIF89a", FileType("a GIF image", "image/gif")),
    (b"%PDF-", FileType("a PDF document")),
    (b"PK\x03\x04", FileType("a ZIP archive or ZIP-based document")),
    (b"PK\x05\x06", FileType("a ZIP archive")),
    (b"\x1f\x8b", FileType("a gzip archive")),
    (b"BZh", FileType("a bzip2 archive")),
    (b"\xfd7zXZ\x00", FileType("an xz archive")),
    (b"\x28\xb5\x2f\xfd", FileType("a zstd archive")),
    (b"7z\xbc\xaf\x27\x1c", FileType("a 7z archive")),
    (b"\x7fELF", FileType("a program (ELF)")),
    (b"MZ", FileType("a Windows program")),
    (b"\xcf\xfa\xed\xfe", FileType("a program (Mach-O)")),
    (b"\xca\xfe\xba\xbe", FileType("a Java class or a program")),
    (b"\x00asm", FileType("a WebAssembly module")),
    (b"SQLite format 3\x00", FileType("an SQLite database")),
    (b"OggS", FileType("audio or video (Ogg)")),
    (b"ID3", FileType("audio (MP3)")),
    (b"fLaC", FileType("audio (FLAC)")),
    (b"\x1aE\xdf\xa3", FileType("video (Matroska or WebM)")),
    (b"wOFF", FileType("a font")),
    (b"wOF2", FileType("a font")),
    (b"!<arch>\n", FileType("an archive (ar)")),
)
_RIFF_TYPES = {
    b"WEBP": FileType("a WebP image", "image/webp"),
    b"WAVE": FileType("audio (WAV)"),
    b"AVI ": FileType("video (AVI)"),
}
_AMBIGUOUS_MAGIC_NUMBERS = frozenset({b"MZ", b"BZh", b"ID3", b"PK\x05\x06"})
"""Magic numbers that a text may also start with: they count only if the file contains NUL bytes."""
_BINARY_TYPE = FileType("binary data")
_UTF8_TEXT_TYPE = FileType("text", encoding="utf-8")


def detect_file_type(head: bytes) -> FileType:
    """Return the type of a file that starts with these bytes; text unless there is evidence otherwise."""
    has_nul = b"\0" in head
    for magic, kind in _TEXT_BOMS:
        if head.startswith(magic):
            return kind
    if head.startswith(b"RIFF") and (riff_type := _RIFF_TYPES.get(head[8:12])) is not None:
        return riff_type
    if head[4:8] == b"ftyp":
        return FileType("a video or image (MP4 or HEIF)")
    for magic, kind in _MAGIC_NUMBERS:
        if head.startswith(magic) and (has_nul or magic not in _AMBIGUOUS_MAGIC_NUMBERS):
            return kind
    return _BINARY_TYPE if has_nul else _UTF8_TEXT_TYPE


ContentBlocks = list[dict[str, Any]]
"""Content blocks of a result, as sent to the client."""

_MAX_IMAGE_BYTES = 4 * 1024 * 1024
_MAX_LINE_CHARACTERS = 2000
"""Maximum characters shown of one line."""
_READ_CHUNK_SIZE = 64 * 1024


def text_block(text: str) -> ContentBlocks:
    """Return a result that consists of one text."""
    return [{"type": "text", "text": text}]


def view_file(
    workspace: Workspace,
    path: str,
    first_line: int,
    max_lines: int,
    max_characters: int,
    cancellation: CancellationToken,
) -> ContentBlocks:
    """Return numbered lines from ``first_line``, limited in number and characters, or an image.

    Raises NativeToolError for any other file.
    """
    with workspace.open_file(path) as file:
        head = os.pread(file.fd, HEAD_BYTES, 0)
        kind = detect_file_type(head)
        if kind.image_mime_type is not None:
            return _image_content(file, kind)
        if kind.encoding is None:
            size = f"{file.stat_result.st_size:,} bytes"
            raise NativeToolError(
                f"'{escape_path(file.path)}' is {kind.words} ({size}), which cannot be shown as text"
            )
        return text_block(
            _format_lines(file, kind.encoding, first_line, max_lines, max_characters, cancellation)
        )


def _image_content(file: OpenedPath, file_type: FileType) -> ContentBlocks:
    if file.stat_result.st_size > _MAX_IMAGE_BYTES:
        raise NativeToolError(
            f"'{escape_path(file.path)}' is {file_type.words} of {file.stat_result.st_size:,} "
            f"bytes; the maximum is {_MAX_IMAGE_BYTES:,}"
        )
    # Read up to the limit only: the file may have grown since its size was checked.
    with os.fdopen(os.dup(file.fd), "rb") as stream:
        data = stream.read(_MAX_IMAGE_BYTES + 1)[:_MAX_IMAGE_BYTES]
    description = f"{escape_path(file.path)}: {file_type.words}, {len(data):,} bytes"
    image = {
        "type": "image",
        "mimeType": file_type.image_mime_type,
        "data": base64.b64encode(data).decode("ascii"),
    }
    return [*text_block(description), image]


def _format_lines(
    file: OpenedPath,
    encoding: str,
    first_line: int,
    max_lines: int,
    max_characters: int,
    cancellation: CancellationToken,
) -> str:
    shown_lines: list[str] = []
    number, characters_left, is_full = 0, max_characters, False
    with _open_text(file.fd, encoding) as stream:
        while (line := _read_line(stream, cancellation)) is not None:
            number += 1
            if number < first_line:
                continue
            numbered_line = f"{number}\t{line}"
            if len(shown_lines) == max_lines or (shown_lines and len(numbered_line) + 1 > characters_left):
                is_full = True
                break
            shown_lines.append(numbered_line[:max_characters])
            characters_left -= len(numbered_line) + 1
    path = escape_path(file.path)
    if not shown_lines:
        if number == 0:
            return f"{path} is empty"
        raise NativeToolError(f"'{path}' has {number:,} lines; line {first_line:,} does not exist")
    last = first_line + len(shown_lines) - 1
    total = f"continue with offset {last + 1}" if is_full else f"of {number:,}"
    return "\n".join(
        (f"{path}, lines {first_line:,} to {last:,}{' ' if not is_full else '; '}{total}", *shown_lines)
    )


def _open_text(fd: int, encoding: str) -> io.TextIOWrapper:
    # Closing the stream closes its descriptor, so it gets a copy. Only "\n" ends a line, as for ``grep``,
    # whose line numbers must agree.
    return io.TextIOWrapper(
        io.BufferedReader(io.FileIO(os.dup(fd), "rb"), _READ_CHUNK_SIZE),
        encoding,
        errors="replace",
        newline="\n",
    )


def _read_line(stream: io.TextIOWrapper, cancellation: CancellationToken) -> str | None:
    """Return the next line without its end, truncated for display; None at the end of the file."""
    piece = stream.readline(_READ_CHUNK_SIZE)
    cancellation.raise_if_stopped()
    if not piece:
        return None
    shown, length = piece[: _MAX_LINE_CHARACTERS + 1], len(piece)
    # Read past the rest of a long line piece by piece, without holding it in memory.
    while not piece.endswith("\n"):
        piece = stream.readline(_READ_CHUNK_SIZE)
        cancellation.raise_if_stopped()
        length += len(piece)
        if not piece:
            break
    shown = shown.rstrip("\n").removesuffix("\r").replace("\0", "\ufffd")
    return (
        shown
        if len(shown) <= _MAX_LINE_CHARACTERS
        else f"{shown[:_MAX_LINE_CHARACTERS]} … ({length:,} characters in this line)"
    )
