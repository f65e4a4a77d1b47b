"""Detect a file's type from its first bytes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

__all__ = ["HEAD_BYTES", "FileType", "detect_file_type"]

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
